//! What the figures were measured on.

use std::fs::read_to_string;

/// One line of facts about this machine.
pub fn facts() -> String {
    let first = |path: &str, prefix: &str| {
        let text = read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(prefix));
        line.map_or("unknown".to_owned(), |rest| {
            rest.trim_start_matches([' ', '\t', ':']).to_owned()
        })
    };
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let profile = if cfg!(debug_assertions) {
        "debug build: not for comparison"
    } else {
        "release build"
    };
    format!(
        "{}, {processors} processors ({}), {} of memory, Linux {}, {profile}",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        first("/proc/cpuinfo", "model name"),
        first("/proc/meminfo", "MemTotal:"),
        kernel.trim()
    )
}
