//! The field `group` of a route.

use nabu_common::crd::RouteSpec;

use super::Problem;
use crate::group::{DEFAULT_SIZE, GroupRule, SIZES, seconds};

/// `route` is the path of the route.
pub(super) fn compile(
    route: &str,
    spec: &RouteSpec,
    problems: &mut Vec<Problem>,
) -> Option<GroupRule> {
    let path = format!("{route}.group");
    let updates = spec.update_existing;
    let spec = spec.group.as_ref()?;
    if updates {
        let message = "cannot be together with updateExisting: others may have built on what one response has committed; \
            leave one of the two out";
        problems.push(Problem::new(path.clone(), message));
    }
    let window = seconds(spec.window.into());
    if window.is_none() {
        let message = "is no whole number of seconds from 1s to 24h; write for example 10m";
        problems.push(Problem::new(format!("{path}.window"), message));
    }
    let max_responses = spec.max_responses.unwrap_or(DEFAULT_SIZE);
    if !SIZES.contains(&max_responses) {
        let message = format!(
            "is not from {} to {}; leave it out for {DEFAULT_SIZE}",
            SIZES.start(),
            SIZES.end()
        );
        problems.push(Problem::new(format!("{path}.maxResponses"), message));
    }
    Some(GroupRule {
        window: window?,
        max_responses,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::group::GroupRule;
    use crate::routes::compile::compile;

    fn rule(group: &serde_json::Value) -> Result<Option<GroupRule>, Vec<String>> {
        let route = json!({"provider": {"kind": "noop", "repository": "o/r"}, "group": group});
        let compiled = compile("ns", "c", &json!({"spec": {"routes": [route]}}));
        compiled
            .map(|compiled| compiled.routes[0].group)
            .map_err(|problems| problems.into_iter().map(|problem| problem.path).collect())
    }

    #[test]
    fn a_group_has_a_window_and_a_size() {
        let expect = |window, max_responses| {
            Ok(Some(GroupRule {
                window,
                max_responses,
            }))
        };
        assert_eq!(rule(&json!(null)), Ok(None));
        assert_eq!(rule(&json!({"window": "10m"})), expect(600, 20));
        assert_eq!(
            rule(&json!({"window": "24h", "maxResponses": 50})),
            expect(86_400, 50)
        );
    }

    #[test]
    fn a_window_or_size_that_is_not_served_is_named() {
        for window in ["0", "1.5s", "25h"] {
            assert_eq!(
                rule(&json!({"window": window})),
                Err(vec!["spec.routes[0].group.window".to_owned()]),
                "{window}"
            );
        }
        for size in [0, 1, 51] {
            assert_eq!(
                rule(&json!({"window": "10m", "maxResponses": size})),
                Err(vec!["spec.routes[0].group.maxResponses".to_owned()]),
                "{size}"
            );
        }
        assert!(rule(&json!({})).is_err(), "a window is needed");
        let route = json!({
            "provider": {"kind": "noop", "repository": "o/r"}, "group": {"window": "1m"}, "updateExisting": true,
        });
        let refused = compile("ns", "c", &json!({"spec": {"routes": [route]}})).unwrap_err();
        assert_eq!(refused[0].path, "spec.routes[0].group");
        assert_eq!(
            rule(&json!({"window": "1m", "titleTemplate": "{{"})),
            Err(vec!["spec.routes[0].group.titleTemplate".to_owned()])
        );
    }
}
