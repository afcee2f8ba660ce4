//! Errors of on-disk structures.

/// An invalid structure: its name, the field and the value.
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
        /// Value of the field.
        value: u64,
        /// The valid values.
        must: &'static str,
    },
    /// The checksum does not match.
    #[error("{structure}: checksum is {stored:#010x}, contents give {computed:#010x}")]
    Checksum {
        /// On-disk structure.
        structure: &'static str,
        /// As stored.
        stored: u32,
        /// Computed from the contents.
        computed: u32,
    },
    /// The input is shorter than the structure requires.
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
