//! Which document of a file a patch is for.

use super::EditError;
use super::plain::Plain;

/// Conditions that exactly one document meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target(Vec<(Field, String)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    ApiVersion,
    Kind,
    Name,
    Namespace,
    /// The number of the document, counted from 1.
    Document,
}

const FIELDS: &str = "apiVersion, kind, name, namespace or document";

impl Target {
    /// Reads `kind=Deployment,name=app`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let condition = |part: &str| {
            let (field, value) = part.split_once('=')?;
            let field = match field.trim() {
                "apiVersion" => Field::ApiVersion,
                "kind" => Field::Kind,
                "name" => Field::Name,
                "namespace" => Field::Namespace,
                "document" if value.trim().parse::<usize>().is_ok_and(|number| number > 0) => {
                    Field::Document
                }
                _ => return None,
            };
            let value = value.trim();
            (!value.is_empty()).then(|| (field, value.to_owned()))
        };
        let conditions: Option<Vec<_>> = text.split(',').map(condition).collect();
        conditions.map(Self).ok_or_else(|| {
            format!("{text:?} selects no document: write conditions like kind=Deployment,name=app, with {FIELDS}")
        })
    }

    fn fits(&self, number: usize, document: &Plain) -> bool {
        let metadata = document.get("metadata");
        self.0.iter().all(|(field, wanted)| {
            let value = match field {
                Field::ApiVersion => document.get("apiVersion"),
                Field::Kind => document.get("kind"),
                Field::Name => metadata.and_then(|metadata| metadata.get("name")),
                Field::Namespace => metadata.and_then(|metadata| metadata.get("namespace")),
                Field::Document => return wanted.parse() == Ok(number + 1),
            };
            value.and_then(Plain::as_text).as_deref() == Some(wanted)
        })
    }
}

/// The one document that is meant.
pub(super) fn find(target: Option<&Target>, documents: &[Plain]) -> Result<usize, EditError> {
    let fits = |(at, document): (usize, &Plain)| {
        target
            .is_none_or(|target| target.fits(at, document))
            .then_some(at)
    };
    let mut fitting = documents.iter().enumerate().filter_map(fits);
    match (fitting.next(), fitting.count(), target) {
        (Some(at), 0, _) => Ok(at),
        (Some(_), more, None) => Err(EditError::new(
            "",
            &format!(
                "the file has {} documents, and the patch selects none of them",
                more + 1
            ),
        )),
        (Some(_), more, Some(_)) => Err(EditError::new(
            "",
            &format!("{} documents fit what the patch selects", more + 1),
        )),
        (None, _, Some(_)) => Err(EditError::new(
            "",
            "no document fits what the patch selects",
        )),
        (None, _, None) => Err(EditError::new(
            "",
            "the file has no document; give its contents instead",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plain;
    use super::*;

    #[test]
    fn exactly_one_document_must_fit() {
        let documents = plain::yaml(
            "kind: A\nmetadata: {name: x}\n---\nkind: A\nmetadata: {name: w, namespace: m}\n---\nkind: B\nmetadata: {name: x}\n",
        )
        .unwrap();
        let found = |target: &str| find(Some(&Target::parse(target).unwrap()), &documents).ok();
        assert_eq!(found("kind=A,name=w"), Some(1));
        assert_eq!(found("namespace=m"), Some(1));
        assert_eq!(found(" kind = B "), Some(2));
        assert_eq!(found("document=1"), Some(0));
        assert_eq!(found("kind=A"), None);
        assert_eq!(found("kind=C"), None);
        assert_eq!(found("document=4"), None);
        assert!(find(None, &documents).is_err());
        assert_eq!(find(None, &documents[..1]).unwrap(), 0);
        assert!(find(None, &[]).is_err());
    }

    #[test]
    fn other_fields_are_refused() {
        for text in [
            "",
            "kind",
            "kind=",
            "label=x",
            "document=0",
            "document=x",
            "kind=A,",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
