//! Which file system was requested?

use volume::Kind;

/// File system of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Type {
    /// Linux's file system for flash.
    #[default]
    F2fs,
    /// A log-structured file system for disks.
    Scherlfs,
}

impl From<Type> for Kind {
    fn from(asked: Type) -> Kind {
        match asked {
            Type::F2fs => Kind::F2fs,
            Type::Scherlfs => Kind::ScherlFs,
        }
    }
}
