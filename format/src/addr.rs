//! Distinct types for addresses and numbers of different kinds.

use std::fmt;

/// Absolute block address on the device, in 4 KiB blocks. Zero is a hole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockAddr(pub u32);

impl BlockAddr {
    /// A hole (kernel `NULL_ADDR`).
    pub const NULL: Self = Self(0);
    /// Reserved, not written yet (kernel `NEW_ADDR`).
    pub const NEW: Self = Self(0xFFFF_FFFF);
    /// First slot of a compressed cluster (kernel `COMPRESS_ADDR`).
    pub const COMPRESS: Self = Self(0xFFFF_FFFE);

    /// True for anything but a hole or one of the two marks, inside the main area or not.
    #[inline]
    pub fn is_real(self) -> bool {
        self.0 != 0 && self.0 < 0xFFFF_FFFE
    }
    /// The address `n` blocks further; saturating, so that an invalid value stays outside every device.
    #[inline]
    #[must_use]
    pub fn plus(self, n: u32) -> Self {
        Self(self.0.saturating_add(n))
    }
}

impl fmt::Debug for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NULL => f.write_str("hole"),
            Self::NEW => f.write_str("new"),
            Self::COMPRESS => f.write_str("cluster"),
            Self(a) => write!(f, "{a:#x}"),
        }
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Segment number, counted from the start of the main area.
    SegNo
);
number!(
    /// Section number, counted from the start of the main area.
    SecNo
);
number!(
    /// Node number: index into the NAT.
    Nid
);
number!(
    /// Inode number: the [`Nid`] of an inode's own block.
    Ino
);

impl Ino {
    /// The same number as a node number.
    #[inline]
    pub fn nid(self) -> Nid {
        Nid(self.0)
    }
}

impl Nid {
    /// The number as an inode number; correct only if the node is an inode.
    #[inline]
    pub fn as_ino(self) -> Ino {
        Ino(self.0)
    }
}
