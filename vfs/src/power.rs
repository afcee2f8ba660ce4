//! The power source; its effect is up to each file system.

/// The power source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// A battery: minimise energy now.
    #[default]
    Battery,
    /// A charger: spend energy now to save it later.
    Powered,
}

impl Power {
    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Power::Battery => "battery",
            Power::Powered => "powered",
        }
    }
    /// Parses a power source. The error completes the sentence "power ...".
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse(name: &str) -> Result<Power, String> {
        match name {
            "battery" => Ok(Power::Battery),
            "powered" => Ok(Power::Powered),
            _ => Err("is battery or powered".to_owned()),
        }
    }
}
