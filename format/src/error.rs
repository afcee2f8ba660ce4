//! What a structure can be wrong about.

/// Bytes that do not form a lawful structure: names the structure, the field and what it held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A field's value is outside what the format allows.
    #[error("{structure}: {field} is {value} (must be {must})")]
    Field {
        /// On-disk structure.
        structure: &'static str,
        /// On-disk field name.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What would be lawful.
        must: &'static str,
    },
    /// A checksum does not match.
    #[error("{structure}: checksum is {stored:#010x}, contents give {computed:#010x}")]
    Checksum {
        /// On-disk structure.
        structure: &'static str,
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The bytes given are too few for what the structure says of itself.
    #[error("{structure}: {have} bytes where {need} are needed")]
    Short {
        /// On-disk structure.
        structure: &'static str,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
}

impl FormatError {
    pub(crate) fn field(
        structure: &'static str,
        field: &'static str,
        value: impl Into<u64>,
        must: &'static str,
    ) -> Self {
        FormatError::Field { structure, field, value: value.into(), must }
    }
}
