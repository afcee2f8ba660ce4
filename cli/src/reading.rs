//! Which state of an image is read?

use f2fs::{CheckpointChoice, RollForward};
use volume::MountOptions;

/// Which of a volume's two checkpoints to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Checkpoint {
    /// The newest valid one.
    #[default]
    Newest,
    /// The one before the newest.
    Older,
}

/// The options of commands that read images.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Reading {
    /// Read the last checkpoint, without files fsynced after it; for a damaged volume that was not unmounted.
    #[arg(long)]
    norecovery: bool,
    /// Read the checkpoint before the newest one, if the newest is wrong; files and changes since then are missing.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "newest")]
    checkpoint: Checkpoint,
}

impl Reading {
    /// The mount options for this state.
    pub fn options(self) -> MountOptions {
        let mut options = MountOptions::default().read_only(true);
        if self.norecovery {
            options.roll_forward("norecovery", RollForward::Leave);
        }
        if self.checkpoint == Checkpoint::Older {
            options.for_f2fs("checkpoint=older", |f2fs| f2fs.checkpoint = CheckpointChoice::Older);
        }
        options
    }
}
