//! Reports on servers of a shared store: one that stands by, and the owner.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::FromJson;
use crate::json::VERSION;

/// A server that stands by at a shared store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandbyReport {
    /// The version of pelago that stands by.
    pub(crate) pelago: String,
    /// The process that stands by.
    pub(crate) pid: u32,
    /// The folder of the server, absolute.
    pub(crate) dir: PathBuf,
    /// The folder of the store, absolute.
    pub(crate) store: PathBuf,
    /// The id of the volume, in hexadecimal digits.
    pub(crate) id: String,
    /// The address of the server, `KEY@HOST:PORT`.
    pub(crate) listening: String,
    /// The address of the server that owns the volume; `None` if it is not known.
    pub(crate) owner: Option<String>,
    /// The reason why this server could not take the volume when it was free.
    pub(crate) trouble: Option<String>,
}

/// The store of a volume that this process owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreLine {
    /// The folder of the store, absolute.
    pub(crate) folder: PathBuf,
    /// The addresses of all its servers.
    pub(crate) servers: Vec<String>,
}

impl StandbyReport {
    /// Returns the object of `serve --store --json` and of `status --json`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "version": VERSION,
            "state": "stands by",
            "pelago": self.pelago,
            "pid": self.pid,
            "dir": self.dir.to_string_lossy(),
            "store": self.store.to_string_lossy(),
            "id": self.id,
            "listening": self.listening,
            "owner": self.owner,
            "trouble": self.trouble,
        })
    }

    /// Returns the lines of `serve --store` and of `status`.
    pub(crate) fn to_text(&self) -> String {
        let Self { pid, id, listening, .. } = self;
        let store = self.store.display();
        let owner = match &self.owner {
            Some(owner) => format!("the owner is {owner}"),
            None => "the owner is not known yet".to_owned(),
        };
        let trouble = self.trouble.as_ref().map(|why| format!("trouble   {why}\n"));
        format!(
            "store     {store} ({id})\nstate     stands by, process {pid}; {owner}\n\
             listening {listening}\n{}",
            trouble.unwrap_or_default()
        )
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            pelago: "1.2.3".to_owned(),
            pid: 7,
            dir: "/a".into(),
            store: "/store".into(),
            id: "00ff".to_owned(),
            listening: "key@host:1".to_owned(),
            owner: Some("other@host:2".to_owned()),
            trouble: Some("no space".to_owned()),
        }
    }
}

impl FromJson for StandbyReport {
    fn from_json(value: &Value) -> Option<Self> {
        if value["state"] != "stands by" {
            return None;
        }
        Some(Self {
            pelago: String::from_json(&value["pelago"])?,
            pid: u32::from_json(&value["pid"])?,
            dir: PathBuf::from_json(&value["dir"])?,
            store: PathBuf::from_json(&value["store"])?,
            id: String::from_json(&value["id"])?,
            listening: String::from_json(&value["listening"])?,
            owner: Option::from_json(&value["owner"])?,
            trouble: Option::from_json(&value["trouble"])?,
        })
    }
}

impl StoreLine {
    pub(super) fn to_json(&self) -> Value {
        json!({ "folder": self.folder.to_string_lossy(), "servers": self.servers })
    }

    /// Returns the text after the label of the line.
    pub(super) fn text(&self) -> String {
        let folder = self.folder.display();
        let count = self.servers.len();
        let servers = if count == 1 { "server" } else { "servers" };
        format!("{folder}, {count} {servers}; this one owns the volume")
    }

    #[cfg(test)]
    pub(super) fn sample() -> Self {
        let servers = vec!["key@host:1".to_owned(), "other@host:2".to_owned()];
        Self { folder: "/store".into(), servers }
    }
}

impl FromJson for StoreLine {
    fn from_json(value: &Value) -> Option<Self> {
        let servers = value["servers"].as_array()?;
        Some(Self {
            folder: PathBuf::from_json(&value["folder"])?,
            servers: servers.iter().map(String::from_json).collect::<Option<_>>()?,
        })
    }
}
