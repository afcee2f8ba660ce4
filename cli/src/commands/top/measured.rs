//! Measured values shown with the rows of disks and processes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trace::block::DeviceId;

use crate::output;

/// Energy of the processor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    /// Since the start.
    pub joules: f64,
    /// Over the last measured period.
    pub watts: f64,
}

/// A disk's measured power compared with the model's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Compared {
    /// Seconds compared so far.
    pub seconds: f64,
    /// Joules measured in them.
    pub measured: f64,
    /// Joules of the model's storage in them.
    pub model: f64,
    /// Watts of both over the last compared refresh.
    pub watts: (f64, f64),
}

impl Compared {
    /// The model's joules divided by the measured ones.
    pub fn ratio(&self) -> Option<f64> {
        (self.measured > 0.0).then(|| self.model / self.measured)
    }
}

/// Alumet's measurements at a refresh.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The metric of processes' energy.
    pub metric: Option<String>,
    /// By the name of a row.
    pub by_name: BTreeMap<String, Cpu>,
    /// Processes without requests: their number and energy.
    pub others: (usize, Cpu),
    /// The measured disk, and its latest watts.
    pub disk: Option<(Option<DeviceId>, f64)>,
    pub compared: Compared,
    /// Seconds from the last measurement to the refresh.
    pub old: Option<f64>,
    /// The number of lines that could not be parsed, and the error of the first.
    pub strange: (u64, Option<String>),
    /// True if the start time of the recording was not given.
    pub guessed: bool,
}

impl Look {
    /// The measurements of a row's process.
    pub fn of(&self, process: &str) -> Option<Cpu> {
        self.by_name.get(process).copied()
    }

    /// The text below the rows; `name` gives a disk's name.
    pub fn text(&self, name: impl Fn(DeviceId) -> Option<String>) -> String {
        let mut out = String::new();
        match (&self.metric, self.old) {
            (_, None) => out += "\nalumet: nothing measured yet",
            (metric, Some(old)) => {
                let metric = metric.as_deref().unwrap_or("no energy of processes");
                out += &format!("\nalumet: {}, {old:.1} s ago", output::plain(metric));
                if self.others.0 > 0 {
                    let (n, cpu) = self.others;
                    out += &format!("; {n} processes without disk requests: {:.2} W, {:.2} J", cpu.watts, cpu.joules);
                }
            }
        }
        if self.guessed && self.old.is_some() {
            out += "; assuming that the recording begins at its first measurement";
        }
        if let Some((disk, watts)) = self.disk {
            let c = &self.compared;
            match (disk.and_then(&name), c.ratio()) {
                (None, _) => out += &format!("\nmeasured: {watts:.3} W of an unknown disk; name it with --alumet-disk"),
                (Some(disk), None) => out += &format!("\nmeasured: {disk} {watts:.3} W"),
                (Some(disk), Some(ratio)) => {
                    out += &format!(
                        "\nmeasured: {disk} {:.3} W, model's storage {:.3} W; {:.2} J and {:.2} J in {:.1} s, model / \
                         measured {ratio:.3}",
                        c.watts.0, c.watts.1, c.measured, c.model, c.seconds
                    );
                }
            }
        }
        if let (n @ 1.., Some(first)) = (self.strange.0, &self.strange.1) {
            out += &format!("\nalumet: {n} lines not understood, the first: {}", output::plain(first));
        }
        out
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let cpu = |c: &Cpu| json!({ "joules": c.joules, "watts": c.watts });
        let c = &self.compared;
        json!({
            "metric": self.metric,
            "seconds_old": self.old,
            "by_process": self.by_name.iter().map(|(name, c)| (name.clone(), cpu(c))).collect::<serde_json::Map<_, _>>(),
            "other_processes": { "count": self.others.0, "joules": self.others.1.joules, "watts": self.others.1.watts },
            "disk": self.disk.map(|(id, watts)| json!({
                "device": id.map(|id| id.to_string()),
                "last_watts": watts,
                "compared_s": c.seconds,
                "measured_joules": c.measured,
                "model_storage_joules": c.model,
                "measured_watts": c.watts.0,
                "model_storage_watts": c.watts.1,
                "model_by_measured": c.ratio(),
            })),
            "lines_not_understood": self.strange.0,
            "beginning_guessed": self.guessed,
        })
    }

    /// The same as OpenMetrics text; `name` gives a disk's name, and `label` formats a label's value.
    pub fn metrics(&self, name: impl Fn(DeviceId) -> Option<String>, label: impl Fn(&str) -> String) -> String {
        let head = |name: &str, kind: &str, unit: &str, help: &str| {
            format!("# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}\n")
        };
        let mut out =
            head("joulefs_cpu_joules", "counter", "joules", "Processor energy that Alumet attributes to a process.");
        for (name, cpu) in &self.by_name {
            out += &format!("joulefs_cpu_joules_total{{process=\"{}\"}} {}\n", label(name), cpu.joules);
        }
        let Some(disk) = self.disk.and_then(|(id, _)| id).and_then(name) else { return out };
        let (device, c) = (label(&disk), &self.compared);
        for (name, help, joules) in [
            ("joulefs_measured_joules", "Energy of the disk that Alumet measured.", c.measured),
            ("joulefs_compared_joules", "Energy of the model's storage in the time that was measured.", c.model),
        ] {
            out += &head(name, "counter", "joules", help);
            out += &format!("{name}_total{{device=\"{device}\"}} {joules}\n");
        }
        out += &head("joulefs_measured_watts", "gauge", "watts", "Power of the disk that Alumet measured.");
        out + &format!("joulefs_measured_watts{{device=\"{device}\"}} {}\n", c.watts.0)
    }
}
