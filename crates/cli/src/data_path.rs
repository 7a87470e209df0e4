//! The choices of `--passthrough` and `--io-uring`.

use clap::ValueEnum;

/// The files that use passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Passthrough {
    /// Large files, and new ones in directories of large files
    Auto,
    /// All files
    Always,
    /// No file: all bytes are copied through this process
    Never,
}

impl Passthrough {
    /// Returns the name of the choice on the command line and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    /// Returns the choice with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|choice| choice.name() == name)
    }
}

/// The way in which requests of the kernel come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoUring {
    /// If the kernel offers it and it is faster; otherwise by the device
    Auto,
    /// Or nothing is mounted
    Always,
    /// By the device
    Never,
}

/// The option for the way in which requests of the kernel come.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct RequestArgs {
    /// Exchange requests with the kernel over io_uring: if that is offered and faster (auto), or
    /// nothing is mounted (always), or by /dev/fuse (never)
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = IoUring::Auto)]
    #[arg(hide_possible_values = true)]
    pub(crate) io_uring: IoUring,
}

impl From<IoUring> for pelago_mount::IoUring {
    fn from(io_uring: IoUring) -> Self {
        match io_uring {
            IoUring::Auto => Self::Auto,
            IoUring::Always => Self::Always,
            IoUring::Never => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for choice in Passthrough::value_variants() {
            let value = choice.to_possible_value().unwrap();
            assert_eq!(value.get_name(), choice.name());
            assert_eq!(Passthrough::from_name(choice.name()), Some(*choice));
        }
    }
}
