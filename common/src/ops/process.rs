//! What the kernel knows of this process, under the names that every Prometheus client library uses.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads `/proc/self` whenever it is asked; shows nothing where there is none.
#[derive(Debug, Default)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let metric = encoder.encode_descriptor(
                "process_cpu_seconds",
                "Processor time used",
                None,
                prometheus_client::metrics::MetricType::Counter,
            )?;
            counter.encode(metric)?;
        }
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory",
                resident_bytes(),
            ),
            ("process_open_fds", "Open file descriptors", open_files()),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let metric = encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    prometheus_client::metrics::MetricType::Gauge,
                )?;
                ConstGauge::new(value).encode(metric)?;
            }
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn open_files() -> Option<i64> {
    i64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

/// Fields 14 and 15 of `stat`, counted from 1; the name before them may hold spaces and ends with ')'.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some((f64::from(user) + f64::from(system)) / f64::from(ticks))
}

#[cfg(test)]
mod tests {
    use crate::build::{COMMIT, VERSION};

    #[test]
    fn the_process_shows_its_memory_and_processor_time() {
        let mut registry = prometheus_client::registry::Registry::default();
        crate::ops::register_process_metrics(&mut registry, "x");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for name in [
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            &format!("x_build_info{{version=\"{VERSION}\",commit=\"{COMMIT}\"}} 1"),
        ] {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
}
