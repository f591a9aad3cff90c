//! The group of a change: which it is, what its pull request is called, and how the bodies of its members make one. Pure.

use handlebars::Context;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::branch::{check, refusal};
use super::{MAX_TITLE, RenderInput, body, markdown, text, text_parameter};
use crate::change::Intent;
use crate::group::{self, Group, GroupScope, Window, spoken};
use crate::response::ResponseError;

/// Characters that the sections of all members have together.
const ROOM_FOR_SECTIONS: usize = body::MAX_BODY - 2_000;

/// A body that people have made longer than this gets no more sections, only markers: forges cut or refuse longer ones.
const MOST_CHARACTERS: usize = 62_000;

/// The group that a change goes into, if its route groups and the change may be grouped: one that names its own branch
/// is not, nor is one whose creation nobody knows.
pub(super) fn of(
    input: &RenderInput<'_>,
    parameters: &Value,
    context: &mut Context,
) -> Result<Option<Group>, ResponseError> {
    let created = input
        .event_response
        .pointer("/metadata/creationTimestamp")
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<Timestamp>().ok());
    let (Some(rule), Some(created), None) = (
        input.route.group,
        created,
        text_parameter(parameters, "branch"),
    ) else {
        return Ok(None);
    };
    let Some(window) = rule.window_of(created) else {
        return Ok(None);
    };
    let scope = GroupScope {
        prefix: input.route.branch_prefix,
        cluster: &input.key.cluster,
        route: input.route.id,
        repository: &input.route.target.repository,
        base: input.route.base_branch,
    };
    let branch = group::branch(&scope, &window);
    check(&branch).map_err(|why| refusal(&branch, &why))?;
    let length = spoken(rule.window);
    if let Some(root) = context.data_mut().as_object_mut() {
        let seen = json!({
            "branch": branch, "start": window.start.to_string(), "end": window.end.to_string(), "window": length,
        });
        root.insert("Group".to_owned(), seen);
    }
    let title = title(input, context, &branch)?;
    Ok(Some(Group {
        introduction: introduction(input, &window),
        branch,
        title,
        max_responses: rule.max_responses,
    }))
}

fn title(
    input: &RenderInput<'_>,
    context: &Context,
    branch: &str,
) -> Result<String, ResponseError> {
    let rendered = input.templates.group_title.render(context)?.text;
    let line = text::squeeze(&rendered);
    let visible = line.chars().any(|c| !text::is_hidden(c));
    let line = if visible {
        line
    } else {
        markdown::neutralise(branch)
    };
    Ok(text::clip(&line, MAX_TITLE))
}

fn introduction(input: &RenderInput<'_>, window: &Window) -> String {
    format!(
        "Each commit is the change of one EventResponse of cluster {}, by route {}, created from {:.0} until {:.0}.",
        markdown::neutralise(input.cluster.name),
        markdown::neutralise(input.route.id),
        window.start,
        window.end,
    )
}

/// What one member says in the shared body, with its marker last. `body` is that of the change alone.
pub fn section(intent: &Intent, body: &str) -> String {
    let most = intent.group.as_ref().map_or(1, |group| group.max_responses);
    let room = ROOM_FOR_SECTIONS / usize::try_from(most.max(1)).unwrap_or(1);
    let (text, marker) = body.rsplit_once('\n').unwrap_or(("", body));
    let heading = text::clip(&intent.title, 100);
    let text = format!("### {heading}\n\n{}", text.trim());
    body::assemble_in(room, &text, false, marker)
}

/// The body of a group's pull request with its first section.
pub fn first_body(group: &Group, section: &str) -> String {
    format!("{}\n\n{section}", group.introduction)
}

/// The body with one more section, or only its marker if it is long already.
pub fn with_section(body: &str, section: &str) -> String {
    let body = body.trim_end();
    let longer = body.chars().count() + section.chars().count();
    let added = if longer > MOST_CHARACTERS {
        section
            .rsplit_once('\n')
            .map_or(section, |(_, marker)| marker)
    } else {
        section
    };
    format!("{body}\n\n{added}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn member(max_responses: u32, body: &str) -> Intent {
        let group = Group {
            branch: "nabu/prod-eu/group-0-1".to_owned(),
            title: "Changes".to_owned(),
            introduction: "Each commit …".to_owned(),
            max_responses,
        };
        Intent {
            group: Some(group),
            body: body.to_owned(),
            ..fixtures::intent()
        }
    }

    #[test]
    fn a_section_has_the_title_the_text_and_the_marker_of_its_change() {
        let intent = member(20, "because\n\n<!-- marker -->");
        let section = section(&intent, &intent.body);
        assert_eq!(
            section,
            "### Revoke evil\n\nbecause\n\n<!-- marker -->".to_owned()
        );
        let group = intent.group.as_ref().unwrap();
        let body = first_body(group, &section);
        assert_eq!(
            with_section(&body, "### b\n\n<!-- b -->"),
            format!("Each commit …\n\n{section}\n\n### b\n\n<!-- b -->")
        );
    }

    #[test]
    fn the_sections_of_a_full_group_fit_into_one_body_and_no_open_block_reaches_into_the_next() {
        for most in [2, 20, 50] {
            let mut body = String::new();
            for number in 0..most {
                let marker = format!("<!-- nabu: cluster=prod-eu uid={number} digest=x -->");
                let long = format!("```yaml\n{}\n\n{marker}", "x: 1\n".repeat(20_000));
                let intent = member(most, &long);
                let section = section(&intent, &long);
                assert!(section.ends_with(&marker), "{section}");
                assert!(section.contains("\n```\n"), "the block is closed");
                body = with_section(&body, &section);
            }
            assert!(body.chars().count() <= body::MAX_BODY, "{most}");
            assert_eq!(body.matches("_This text was cut").count(), most as usize);
        }
    }

    #[test]
    fn a_body_that_people_made_long_still_gets_the_marker() {
        let long = "x".repeat(61_000);
        let section = format!("### a\n\n{}\n\n<!-- marker -->", "y".repeat(2_000));
        assert_eq!(
            with_section(&long, &section),
            format!("{long}\n\n<!-- marker -->")
        );
    }
}
