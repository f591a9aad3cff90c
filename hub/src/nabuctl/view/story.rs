//! A response explained, and a route test.

use anyhow::Context as _;
use nabu_proto::admin_v1::{
    ExplainResponseResponse, Finding, RouteCandidate, RouteDecision, TestRouteResponse,
};

use super::json::{story_json, trial_json};
use super::responses::{facts, print_change};
use super::text::time;
use crate::nabuctl::output::{Out, Output, print_value};
use crate::nabuctl::table::visible;

pub(in crate::nabuctl) fn story(
    answer: &ExplainResponseResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let one = answer
        .response
        .as_ref()
        .context("the hub's answer has no response in it")?;
    match output {
        Output::Json | Output::Yaml => return print_value(&story_json(answer, one), output, out),
        Output::Name => return Ok(writeln!(out, "{}", visible(&one.name))?),
        Output::Table | Output::Wide => facts(one, out)?,
    }
    if let Some(waiting) = &answer.waiting {
        let until = match time(waiting.until) {
            until if until.is_empty() => String::new(),
            until => format!(" until {until}"),
        };
        let line = format!("{}{until}: {}", waiting.reason, waiting.detail);
        writeln!(out, "{:<15}{}", "Waits for:", visible(&line))?;
    }
    writeln!(out, "\nSteps")?;
    for step in &answer.steps {
        let line = format!(
            "{}  {:<16} {:<14} {}",
            time(step.at),
            step.actor,
            step.kind,
            step.cause
        );
        writeln!(out, "  {}", visible(&line))?;
    }
    if let Some(routing) = &answer.routing {
        writeln!(out, "\nRouting by the configuration in force now")?;
        print_routing(routing, out)?;
    }
    match &answer.change {
        Some(change) if output == Output::Wide => print_change(change, out),
        _ => Ok(()),
    }
}

pub(in crate::nabuctl) fn trial(
    answer: &TestRouteResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    match output {
        Output::Json | Output::Yaml => return print_value(&trial_json(answer), output, out),
        Output::Name => {
            let route = answer.routing.as_ref().map(|routing| &routing.route);
            let route = route.map_or("", String::as_str);
            return Ok(writeln!(out, "{}", visible(route))?);
        }
        Output::Table | Output::Wide => {}
    }
    for finding in &answer.findings {
        writeln!(out, "{}", visible(&finding_line(finding)))?;
    }
    writeln!(out, "Routing")?;
    if let Some(routing) = &answer.routing {
        print_routing(routing, out)?;
    }
    if !answer.error_reason.is_empty() {
        let line = format!(
            "{} {}: {}",
            answer.error_type, answer.error_reason, answer.error_detail
        );
        writeln!(out, "\nNo pull request: {}", visible(&line))?;
    }
    match &answer.change {
        Some(change) => {
            let target = format!("{} of {}", answer.repository, answer.provider);
            writeln!(out, "\nRepository: {}", visible(&target))?;
            print_change(change, out)
        }
        None => Ok(()),
    }
}

pub(super) fn finding_line(finding: &Finding) -> String {
    let Finding {
        severity,
        document,
        path,
        message,
    } = finding;
    let separator = if path.is_empty() { "" } else { " " };
    format!("{severity}: {document}{separator}{path}: {message}")
}

fn print_routing(routing: &RouteDecision, out: Out<'_>) -> anyhow::Result<()> {
    for candidate in &routing.candidates {
        writeln!(out, "  {}", visible(&candidate_line(candidate)))?;
    }
    if routing.route.is_empty() {
        let end = if routing.conclusive {
            "no route takes it"
        } else {
            "no route takes it, but a document cannot be read or used: it would wait"
        };
        writeln!(out, "  {end}")?;
    }
    Ok(())
}

fn candidate_line(candidate: &RouteCandidate) -> String {
    if candidate.matches {
        return format!("yes  {}", candidate.route);
    }
    let found = if candidate.found.is_empty() {
        "there is none".to_owned()
    } else {
        format!("it is {:?}", candidate.found)
    };
    format!(
        "no   {}: {} wants {}, and {found}",
        candidate.route,
        candidate.field,
        candidate.wanted.join(" or ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_does_not_take_a_response_says_what_it_wants() {
        let candidate = RouteCandidate {
            route: "ns/c/0".to_owned(),
            matches: false,
            field: "clusters".to_owned(),
            wanted: vec!["test-*".to_owned(), "lab".to_owned()],
            found: "prod-eu".to_owned(),
        };
        assert_eq!(
            candidate_line(&candidate),
            "no   ns/c/0: clusters wants test-* or lab, and it is \"prod-eu\""
        );
    }
}
