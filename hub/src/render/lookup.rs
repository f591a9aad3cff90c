//! Finds what a path of a template names: segment by segment, in any case, with the shortcuts of Go-style templates.
//!
//! An exact name wins over one in another case. Where an object of Kubernetes lacks the name, its `spec` is asked, then
//! its `metadata`: `.Source.SE.Type` is `spec.type`, `.Source.ER.Name` is `metadata.name`.

use handlebars::{Context, Handlebars, Helper, HelperDef, RenderContext, RenderError, ScopedJson};
use serde_json::Value;

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// At the root, else at the current `this`.
    Anywhere,
    /// At the root.
    Root,
    /// At the current `this`.
    This,
}

/// The helper behind `lookup_path`, `lookup_root` and `lookup_this`; its parameters are the segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup(pub(super) Start);

impl HelperDef for Lookup {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        context: &'rc Context,
        render: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let segments = helper
            .params()
            .iter()
            .filter_map(|parameter| parameter.value().as_str());
        let segments: Vec<&str> = segments.filter(|segment| !segment.is_empty()).collect();
        if self.0 != Start::This
            && let Some((value, path)) = find(context.data(), &segments)
        {
            return Ok(ScopedJson::Context(value, path));
        }
        if self.0 == Start::Root {
            return Ok(ScopedJson::Missing);
        }
        Ok(match render.evaluate(context, "this")? {
            ScopedJson::Context(this, at) => match find(this, &segments) {
                Some((value, path)) => ScopedJson::Context(value, [at, path].concat()),
                None => ScopedJson::Missing,
            },
            ScopedJson::Missing => ScopedJson::Missing,
            derived => match find(derived.as_json(), &segments) {
                Some((value, _)) => ScopedJson::Derived(value.clone()),
                None => ScopedJson::Missing,
            },
        })
    }
}

/// The value of a path and the path with its exact names.
pub(super) fn find<'v>(start: &'v Value, segments: &[&str]) -> Option<(&'v Value, Vec<String>)> {
    let mut value = start;
    let mut path = Vec::with_capacity(segments.len() + 1);
    for segment in segments {
        if let Some((name, child)) = child(value, segment) {
            path.push(name);
            value = child;
            continue;
        }
        let (part, (name, child)) = ["spec", "metadata"].into_iter().find_map(|part| {
            let inner = value.get(part)?;
            Some((part, child(inner, segment)?))
        })?;
        path.push(part.to_owned());
        path.push(name);
        value = child;
    }
    Some((value, path))
}

fn child<'v>(value: &'v Value, segment: &str) -> Option<(String, &'v Value)> {
    match value {
        Value::Object(fields) => fields
            .get_key_value(segment)
            .or_else(|| {
                fields
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(segment))
            })
            // The embedded struct of Go's types.
            .or_else(|| {
                segment
                    .eq_ignore_ascii_case("ObjectMeta")
                    .then(|| fields.get_key_value("metadata"))
                    .flatten()
            })
            .map(|(name, child)| (name.clone(), child)),
        Value::Array(items) => {
            let index: usize = segment.parse().ok()?;
            Some((index.to_string(), items.get(index)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_as_go_names_them() {
        let root = json!({"Source": {"SE": {
            "kind": "SecurityEvent",
            "metadata": {"name": "se-1", "labels": {"a.b/c": "d"}},
            "spec": {"type": "T", "name": "in spec", "clusterIdentity": {"clusterID": "c"}, "parents": [{"uid": "p"}]},
        }}});
        for (path, expected) in [
            ("Source.SE.Type", json!("T")),
            ("source.se.SPEC.Type", json!("T")),
            ("Source.SE.Kind", json!("SecurityEvent")),
            ("Source.SE.Name", json!("in spec")),
            ("Source.SE.ObjectMeta.Name", json!("se-1")),
            ("Source.SE.Labels", json!({"a.b/c": "d"})),
            ("Source.SE.ClusterIdentity.ClusterID", json!("c")),
            ("Source.SE.Parents.0.UID", json!("p")),
        ] {
            let segments: Vec<&str> = path.split('.').collect();
            assert_eq!(
                find(&root, &segments).map(|(value, _)| value),
                Some(&expected),
                "{path}"
            );
        }
        assert_eq!(find(&root, &["Source", "SE", "Nothing"]), None);
        assert_eq!(find(&root, &["Source", "SE", "Type", "x"]), None);
    }

    #[test]
    fn an_exact_name_wins() {
        let object = json!({"Name": 1, "name": 2});
        assert_eq!(find(&object, &["name"]).unwrap().0, &json!(2));
        assert_eq!(find(&object, &["Name"]).unwrap().0, &json!(1));
    }
}
