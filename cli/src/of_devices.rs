//! Which devices of a recording are selected, and what is reported about devices that are not counted?

use serde_json::{Value, json};
use sim::replay::devices;
use trace::only::Devices;
use trace::stacks::LeftOut;

use crate::Failure;

/// Devices that are asked for.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OfArgs {
    /// Only this device of the recording, by number, e.g. 8,0, or by name, e.g. sda or loop0; may be given several
    /// times. Default: every device except those whose requests were also recorded on a lower device.
    #[arg(long, value_name = "DEV")]
    of: Vec<String>,
}

impl OfArgs {
    /// The arguments as typed.
    pub fn typed(&self) -> &[String] {
        &self.of
    }

    /// The devices; none if all are selected.
    pub fn devices(&self) -> Result<Devices, Failure> {
        let mut all = Devices::default();
        for text in &self.of {
            let Devices { numbers, names } = devices::device(text)?;
            all.numbers.extend(numbers);
            all.names.extend(names);
        }
        Ok(all)
    }
}

/// The devices left out so that no request counts twice, for machines, with those that have no requests.
pub fn json(left_out: &[LeftOut]) -> Value {
    let one = |l: &LeftOut| {
        json!({
            "device": l.device.to_string(),
            "count": l.count,
            "event": l.action.letter(),
            "why": l.why,
            "passes_on_to": l.passes_on_to.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    left_out.iter().map(one).collect()
}
