//! Metrics of the process itself, under the names that every Prometheus client uses. They are read
//! from the operating system when somebody asks for the page.

use std::fmt;

use procfs::process::{LimitValue, Process as Own};
use procfs::{ProcResult, WithCurrentSystemInfo as _};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the process's own numbers.
#[derive(Debug)]
pub(super) struct Process;

/// The numbers at one moment. Times are in seconds, sizes in bytes.
struct Numbers {
    cpu: f64,
    started: f64,
    resident: u64,
    reserved: u64,
    threads: u64,
    open: u64,
    most_open: u64,
}

impl Numbers {
    fn read() -> ProcResult<Self> {
        let own = Own::myself()?;
        let stat = own.stat()?;
        let limits = own.limits()?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "a process does not live that long"
        )]
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        #[expect(clippy::cast_precision_loss, reason = "nor does a machine")]
        let booted = procfs::boot_time_secs()? as f64;
        Ok(Self {
            cpu: seconds(stat.utime + stat.stime),
            started: booted + seconds(stat.starttime),
            resident: stat.rss_bytes().get(),
            reserved: stat.vsize,
            threads: u64::try_from(stat.num_threads).unwrap_or_default(),
            open: u64::try_from(own.fd_count()?).unwrap_or_default(),
            most_open: match limits.max_open_files.soft_limit {
                LimitValue::Value(most) => most,
                LimitValue::Unlimited => u64::MAX,
            },
        })
    }
}

impl Collector for Process {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Without /proc there are none of these metrics.
        let Ok(numbers) = Numbers::read() else {
            return Ok(());
        };
        let gauge = |value: u64| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let cpu = ConstCounter::new(numbers.cpu);
        let help = "Processor time of this replica";
        write(&mut to, ("process_cpu", help), Some(&Unit::Seconds), &cpu)?;
        let help = "When this replica began, Unix time";
        let started = ConstGauge::new(numbers.started);
        let name = "process_start_time";
        write(&mut to, (name, help), Some(&Unit::Seconds), &started)?;
        for (name, help, unit, value) in [
            (
                "process_resident_memory",
                "Memory of this replica that is in use now",
                Some(&Unit::Bytes),
                numbers.resident,
            ),
            (
                "process_virtual_memory",
                "Addresses that this replica has reserved",
                Some(&Unit::Bytes),
                numbers.reserved,
            ),
            (
                "process_open_fds",
                "Files and connections that this replica has open",
                None,
                numbers.open,
            ),
            (
                "process_max_fds",
                "The most files and connections that this replica may have open",
                None,
                numbers.most_open,
            ),
            (
                "process_threads",
                "Threads of this replica",
                None,
                numbers.threads,
            ),
        ] {
            write(&mut to, (name, help), unit, &gauge(value))?;
        }
        Ok(())
    }
}

fn write(
    to: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    unit: Option<&Unit>,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    let of_one = to.encode_descriptor(name, help, unit, metric.metric_type())?;
    metric.encode(of_one)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn the_process_tells_its_own_numbers_without_a_prefix() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        let value = |name: &str| {
            let mut lines = page.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = lines.find(|(found, _)| *found == name).expect(name);
            value.parse::<f64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6, "{page}");
        assert!(value("process_open_fds") >= 1.0, "{page}");
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_start_time_seconds") > 1.7e9, "{page}");
        assert!(value("process_cpu_seconds_total") >= 0.0, "{page}");
        assert!(value("process_threads") >= 1.0, "{page}");
    }
}
