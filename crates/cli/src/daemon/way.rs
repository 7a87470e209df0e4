//! Which way the bytes of files go.

use clap::ValueEnum;
use serde_json::{Value, json};

/// When the kernel is given descriptors of files, so that their bytes pass this process by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Passthrough {
    /// Where files are large, and new ones where those beside them are
    Auto,
    /// Wherever it can be done
    Always,
    /// Nowhere: all bytes go through this process
    Never,
}

impl Passthrough {
    pub(super) const fn for_server(self) -> pelago_server::Passthrough {
        match self {
            Self::Auto => pelago_server::Passthrough::Auto,
            Self::Always => pelago_server::Passthrough::Always,
            Self::Never => pelago_server::Passthrough::Never,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// For programs; `why_not` says why bytes go through this process, where they do.
pub(super) fn describe(wanted: Passthrough, why_not: Option<&str>) -> Value {
    json!({ "wanted": wanted.name(), "why_not": why_not })
}

/// For people, from the object that a volume says of itself.
pub(crate) fn line(object: &Value) -> String {
    let passthrough = &object["passthrough"];
    let way = match passthrough["why_not"].as_str() {
        Some(why_not) => format!("daemon path: {why_not}"),
        None if passthrough["wanted"] == "always" => {
            "passthrough: the kernel reads and writes all files itself".to_owned()
        }
        None => "passthrough: the kernel reads and writes large files itself".to_owned(),
    };
    format!("speed     {way}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(wanted: Passthrough, why_not: Option<&str>) -> String {
        line(&json!({ "passthrough": describe(wanted, why_not) }))
    }

    #[test]
    fn people_are_told_which_way_and_why_not_the_other() {
        let user = said(Passthrough::Auto, Some("passthrough needs root"));
        assert_eq!(user, "speed     daemon path: passthrough needs root\n");
        assert!(said(Passthrough::Auto, None).contains("large files"));
        assert!(!said(Passthrough::Always, None).contains("large"));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for wanted in Passthrough::value_variants() {
            let value = wanted.to_possible_value().unwrap();
            assert_eq!(value.get_name(), wanted.name());
        }
    }
}
