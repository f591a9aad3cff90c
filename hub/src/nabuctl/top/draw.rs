//! Draws the state of `nabuctl top`. Pure: the same state and size give the same picture.

use jiff::Timestamp;
use nabu_proto::admin_v1::Cluster;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Row, Table, TableState};

use super::state::{Panel, State};
use crate::nabuctl::table::{Tone, visible};
use crate::nabuctl::view::phase_tone;
use crate::nabuctl::view::text::{age, seconds, skew, timestamp};

/// A clock that is further off, in seconds, is worth a look.
const CLOCK_OFF: f64 = 5.0;

/// The whole screen.
pub(super) fn draw(state: &State, now: Timestamp, colours: bool, frame: &mut Frame<'_>) {
    let forges = u16::try_from(state.fleet.forges.len()).unwrap_or(u16::MAX);
    let [head, clusters, forge_area, responses, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(2),
        Constraint::Length(forges.clamp(1, 5).saturating_add(3)),
        Constraint::Fill(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let paint = Paint { colours };
    frame.render_widget(headline(state, now, paint), head);
    paint.clusters(state, now, clusters, frame);
    paint.forges(state, now, forge_area, frame);
    paint.responses(state, now, responses, frame);
    let keys = "q quit  Tab next list  ↑↓ move";
    frame.render_widget(Line::from(keys), foot);
}

fn headline(state: &State, now: Timestamp, paint: Paint) -> Line<'static> {
    let fleet = &state.fleet;
    let connected = fleet.clusters.iter().filter(|one| one.connected).count();
    let unfinished: u64 = fleet.clusters.iter().map(|one| one.unfinished).sum();
    let text = format!(
        "{}  hub {}  {connected}/{} clusters connected  {unfinished} unfinished",
        visible(&fleet.hub),
        visible(&fleet.version),
        fleet.clusters.len()
    );
    let mut line = Line::from(text);
    if let Some(trouble) = &state.trouble {
        let since = state.fresh_at.map_or_else(
            || "never heard".to_owned(),
            |at| format!("{} s old", now.duration_since(at).as_secs()),
        );
        let text = format!("  {} ({since})", visible(trouble));
        line.push_span(Span::styled(text, paint.style(Tone::Bad)));
    }
    line
}

/// What went wrong last, and how long ago.
fn fault(cluster: &Cluster, now: Timestamp) -> String {
    match cluster.last_error.as_str() {
        "" => String::new(),
        text => format!("{} ago: {text}", age(cluster.last_error_at, now)),
    }
}

/// How long a certificate is good for.
fn until(at: Option<prost_types::Timestamp>, now: Timestamp) -> String {
    match timestamp(at) {
        Some(end) if end <= now => "ended".to_owned(),
        // The same as the age of now, seen from the end.
        Some(end) => age(
            Some(prost_types::Timestamp {
                seconds: now.as_second(),
                nanos: 0,
            }),
            end,
        ),
        None => String::new(),
    }
}

#[derive(Clone, Copy)]
struct Paint {
    colours: bool,
}

impl Paint {
    fn style(self, tone: Tone) -> Style {
        let colour = match tone {
            Tone::Plain => return Style::default(),
            Tone::Good => Color::Green,
            Tone::Warning => Color::Yellow,
            Tone::Bad => Color::Red,
        };
        if self.colours {
            Style::default().fg(colour)
        } else {
            Style::default()
        }
    }

    fn toned(self, text: &str, tone: Tone) -> Cell<'static> {
        Cell::from(visible(text)).style(self.style(tone))
    }

    fn clusters(self, state: &State, now: Timestamp, area: Rect, frame: &mut Frame<'_>) {
        let rows = state.fleet.clusters.iter().map(|one| {
            let (word, tone) = if one.connected {
                ("yes", Tone::Good)
            } else {
                ("no", Tone::Bad)
            };
            Row::new([
                plain(&one.cluster_id),
                self.toned(word, tone),
                plain(&age(one.last_seen_at, now)),
                plain(&one.unfinished.to_string()),
                plain(&age(one.oldest_unfinished_at, now)),
                plain(
                    &one.backlog
                        .map(|count| count.to_string())
                        .unwrap_or_default(),
                ),
                self.clock(one.clock_skew),
                plain(&until(one.certificate_not_after, now)),
                plain(&one.agent_version),
                plain(&one.kubernetes_version),
                plain(&fault(one, now)),
            ])
        });
        let headings = [
            "CLUSTER",
            "CONNECTED",
            "SEEN",
            "UNFINISHED",
            "OLDEST",
            "BACKLOG",
            "CLOCK",
            "CERT",
            "AGENT",
            "KUBERNETES",
            "LAST ERROR",
        ];
        let widths = [
            Constraint::Fill(2),
            Constraint::Length(9),
            Constraint::Length(6),
            Constraint::Length(10),
            Constraint::Length(6),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(5),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Fill(2),
        ];
        let table = Table::new(rows, widths).header(header(&headings));
        list(table, "Clusters", state, Panel::Clusters, area, frame);
    }

    fn clock(self, off: Option<prost_types::Duration>) -> Cell<'static> {
        let far = seconds(off).is_some_and(|seconds| seconds.abs() > CLOCK_OFF);
        self.toned(&skew(off), if far { Tone::Warning } else { Tone::Plain })
    }

    fn forges(self, state: &State, now: Timestamp, area: Rect, frame: &mut Frame<'_>) {
        let rows = state.fleet.forges.iter().map(|one| {
            let tone = match one.state.as_str() {
                "Ready" => Tone::Good,
                "Idle" => Tone::Plain,
                "Careful" => Tone::Warning,
                _ => Tone::Bad,
            };
            let left = one
                .limits
                .iter()
                .map(|limit| format!("{}{}/{}", limit.resource, limit.remaining, limit.limit));
            Row::new([
                plain(&one.provider),
                plain(&one.credential),
                self.toned(&one.state, tone),
                plain(&one.running.to_string()),
                plain(&one.waiting.to_string()),
                plain(&left.collect::<Vec<_>>().join(" ")),
                plain(&age(one.last_answer_at, now)),
            ])
        });
        let headings = [
            "PROVIDER",
            "CREDENTIAL",
            "STATE",
            "RUN",
            "WAIT",
            "LEFT",
            "ANSWERED",
        ];
        let widths = [
            Constraint::Length(13),
            Constraint::Fill(1),
            Constraint::Length(17),
            Constraint::Length(4),
            Constraint::Length(5),
            Constraint::Fill(1),
            Constraint::Length(8),
        ];
        let table = Table::new(rows, widths).header(header(&headings));
        list(table, "Forges", state, Panel::Forges, area, frame);
    }

    fn responses(self, state: &State, now: Timestamp, area: Rect, frame: &mut Frame<'_>) {
        let rows = state.fleet.responses.iter().map(|one| {
            let last = if one.url.is_empty() {
                &one.error_reason
            } else {
                &one.url
            };
            Row::new([
                plain(&one.cluster_id),
                plain(&one.name),
                self.toned(&one.phase, phase_tone(&one.phase)),
                plain(&age(one.observed_at, now)),
                plain(&one.attempts.to_string()),
                plain(last),
            ])
        });
        let headings = [
            "CLUSTER",
            "NAME",
            "PHASE",
            "AGE",
            "TRIES",
            "PULL REQUEST OR REASON",
        ];
        let widths = [
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Length(9),
            Constraint::Length(6),
            Constraint::Length(5),
            Constraint::Fill(2),
        ];
        let table = Table::new(rows, widths).header(header(&headings));
        list(
            table,
            "Newest responses",
            state,
            Panel::Responses,
            area,
            frame,
        );
    }
}

fn plain(text: &str) -> Cell<'static> {
    Cell::from(visible(text))
}

fn header(headings: &[&'static str]) -> Row<'static> {
    Row::new(headings.iter().map(|heading| Cell::from(*heading)))
        .style(Style::default().add_modifier(Modifier::BOLD))
}

fn list(
    table: Table<'_>,
    title: &'static str,
    state: &State,
    panel: Panel,
    area: Rect,
    frame: &mut Frame<'_>,
) {
    let active = state.panel == panel;
    let mut place = TableState::default();
    if active {
        place.select(Some(state.selected[panel as usize]));
    }
    let table = table
        .block(Block::bordered().title(title))
        .row_highlight_style(Style::default().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut place);
}

#[cfg(test)]
mod tests {
    use nabu_proto::admin_v1::{Cluster, Forge, Response};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::Fleet;
    use super::*;

    fn picture(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let now = Timestamp::from_second(1_800_000_060).unwrap();
        terminal
            .draw(|frame| draw(state, now, false, frame))
            .unwrap();
        terminal.backend().to_string()
    }

    fn state() -> State {
        let seen = Some(prost_types::Timestamp {
            seconds: 1_800_000_000,
            nanos: 0,
        });
        let mut state = State::default();
        let fleet = Fleet {
            hub: "https://hub:8444".to_owned(),
            version: "0.1.0".to_owned(),
            clusters: vec![Cluster {
                cluster_id: "prod-eu".to_owned(),
                connected: true,
                unfinished: 3,
                last_seen_at: seen,
                backlog: Some(17),
                clock_skew: Some(prost_types::Duration {
                    seconds: -7,
                    nanos: 0,
                }),
                certificate_not_after: Some(prost_types::Timestamp {
                    seconds: 1_800_007_260,
                    nanos: 0,
                }),
                last_error: "SessionLost: no frame".to_owned(),
                last_error_at: seen,
                ..Cluster::default()
            }],
            forges: vec![Forge {
                provider: "gitlab-token".to_owned(),
                credential: "ns/bot".to_owned(),
                state: "Limited".to_owned(),
                ..Forge::default()
            }],
            responses: vec![Response {
                cluster_id: "prod-eu".to_owned(),
                name: "er-1\u{1b}[2J".to_owned(),
                phase: "Pending".to_owned(),
                error_reason: "RateLimited".to_owned(),
                observed_at: seen,
                ..Response::default()
            }],
        };
        state.heard(Ok(fleet), Timestamp::from_second(1_800_000_050).unwrap());
        state
    }

    #[test]
    fn the_screen_has_the_fleet_the_forges_and_the_newest_responses() {
        let screen = picture(&state(), 140, 24);
        for part in [
            "17      -7.0s   2h",
            "60s ago: SessionLost",
            "https://hub:8444  hub 0.1.0  1/1 clusters connected  3 unfinished",
            "Clusters",
            "prod-eu",
            "60s",
            "gitlab-token",
            "Limited",
            "RateLimited",
            "q quit",
        ] {
            assert!(screen.contains(part), "{part}: {screen}");
        }
        assert!(!screen.contains('\u{1b}'), "{screen}");
    }

    #[test]
    fn trouble_is_shown_with_the_age_of_what_is_known_and_a_small_screen_still_draws() {
        let mut state = state();
        state.heard(Err("no answer".to_owned()), Timestamp::UNIX_EPOCH);
        let screen = picture(&state, 140, 24);
        assert!(screen.contains("no answer (10 s old)"), "{screen}");
        for (width, height) in [(1, 1), (10, 3), (40, 8)] {
            picture(&state, width, height);
        }
    }
}
