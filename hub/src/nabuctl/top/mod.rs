//! `nabuctl top`: the fleet as it is now, on a terminal. The shell around [`state`] and [`draw`].

mod draw;
mod state;

use std::io::IsTerminal as _;
use std::time::Duration;

use jiff::Timestamp;
use nabu_proto::admin_v1::{GetVersionRequest, ListForgesRequest, ListResponsesRequest};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::client::{self, Hub, explain};
use super::output::Terminal;
use super::{Connection, ask, context};
use state::{Fleet, Key, State};

/// Responses that are shown.
const NEWEST: i32 = 100;

/// Shows the fleet until somebody quits.
pub(super) async fn run(connection: &Connection, every: Duration) -> anyhow::Result<()> {
    anyhow::ensure!(
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
        "top needs a terminal; `nabuctl cluster list --watch` does not"
    );
    let hub = client::connect(connection).await?;
    let address = context::way(connection)?.hub;
    let mut keys = keys();
    let mut terminal = ratatui::try_init()?;
    let shown = show(&hub, &address, every, &mut keys, &mut terminal).await;
    ratatui::restore();
    shown
}

async fn show(
    hub: &Hub,
    address: &str,
    every: Duration,
    keys: &mut mpsc::Receiver<Input>,
    terminal: &mut ratatui::DefaultTerminal,
) -> anyhow::Result<()> {
    let colours = Terminal::of_stdout().colours;
    let mut state = State::default();
    let mut clock = tokio::time::interval(every);
    loop {
        tokio::select! {
            _ = clock.tick() => {
                let answer = look(hub, address).await.map_err(|error| format!("{error:#}"));
                state.heard(answer, Timestamp::now());
            }
            input = keys.recv() => match input {
                Some(Input::Key(key)) => if !state.key(key) {
                    return Ok(());
                },
                Some(Input::Other) => {}
                None => return Ok(()),
            }
        }
        terminal.draw(|frame| draw::draw(&state, Timestamp::now(), colours, frame))?;
    }
}

async fn look(hub: &Hub, address: &str) -> anyhow::Result<Fleet> {
    let version = hub.operations().get_version(GetVersionRequest {}).await;
    let forges = hub.operations().list_forges(ListForgesRequest {}).await;
    let request = ListResponsesRequest {
        page_size: NEWEST,
        ..ListResponsesRequest::default()
    };
    let responses = hub.clusters().list_responses(request).await;
    Ok(Fleet {
        hub: address.to_owned(),
        version: version.map_err(explain)?.into_inner().version,
        clusters: ask::all_clusters(hub).await?,
        forges: forges.map_err(explain)?.into_inner().forges,
        responses: responses.map_err(explain)?.into_inner().responses,
    })
}

/// What came from the keyboard.
enum Input {
    Key(Key),
    /// Anything that may need a new picture, such as another size.
    Other,
}

/// Reads the keyboard on a thread of its own, which ends with the program.
fn keys() -> mpsc::Receiver<Input> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(meaning(&event)).is_err() {
                return;
            }
        }
    });
    keys
}

fn meaning(event: &Event) -> Input {
    let Event::Key(key) = event else {
        return Input::Other;
    };
    if key.kind == KeyEventKind::Release {
        return Input::Other;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Input::Key(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Input::Key(Key::Quit),
        KeyCode::Up | KeyCode::Char('k') => Input::Key(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Input::Key(Key::Down),
        KeyCode::Tab => Input::Key(Key::Next),
        _ => Input::Other,
    }
}
