//! Where does the power come from? What a file system makes of it is its own matter.

/// Where the power comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// A battery: spend least now.
    #[default]
    Battery,
    /// A charger: invest.
    Powered,
}

impl Power {
    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Power::Battery => "battery",
            Power::Powered => "powered",
        }
    }
    /// The source of a name. The error completes the sentence "power ...".
    ///
    /// # Errors
    /// The name is none of the two.
    pub fn parse(name: &str) -> Result<Power, String> {
        match name {
            "battery" => Ok(Power::Battery),
            "powered" => Ok(Power::Powered),
            _ => Err("is battery or powered".to_owned()),
        }
    }
}
