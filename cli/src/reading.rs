//! As of which state is an image read?

use f2fs::{CheckpointChoice, RollForward};
use volume::MountOptions;

/// Which of a volume's two checkpoints is to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Checkpoint {
    /// The newest one that is whole.
    #[default]
    Newest,
    /// The one before it.
    Older,
}

/// The options of commands that read images.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Reading {
    /// Read the volume as of its last checkpoint, without what was synced since; for one that is damaged and was
    /// not unmounted.
    #[arg(long)]
    norecovery: bool,
    /// Read the volume by the checkpoint before the newest one. Use this where the newest one is wrong; files and changes
    /// since then are missing.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "newest")]
    checkpoint: Checkpoint,
}

impl Reading {
    /// How a volume is mounted to be read so.
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
