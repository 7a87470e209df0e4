//! The records of the servers of a store: files `servers/KEY`, each with the address of one server.

use std::io::Write as _;

use pelago_wire::limits;

use super::ProcessId;
use super::error::OwnerError;
use super::shard;
use crate::folder::Folder;
use crate::volume::layout::SERVERS;

/// Most bytes of a key as the name of a file.
const KEY_BYTES: usize = 128;
/// Most files that are read in `servers/`.
const MOST: usize = 1024;
/// Permissions of a file.
const FILE_MODE: u32 = 0o600;

/// The record of a server of a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerRecord {
    /// The public key of the server, as text.
    pub key: String,
    /// Its address, `HOST:PORT`.
    pub address: String,
}

/// Records a server, on stable storage, in place of its earlier record.
///
/// # Errors
/// [`OwnerError`]; [`OwnerError::Invalid`] if the key or the address is not valid.
pub fn record_server(store: &Folder, record: &ServerRecord) -> Result<(), OwnerError> {
    if !is_key(&record.key) {
        return Err(OwnerError::Invalid { what: "the key of this server" });
    }
    if !is_address(&record.address) {
        return Err(OwnerError::Invalid { what: "the address of this server" });
    }
    let servers = store.create_folder(SERVERS)?;
    let text = format!("{}\n", record.address);
    if shard::read_text(&servers, &record.key)?.is_some_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    let failed = |error| OwnerError::from_io("writing", &servers.path().join(&record.key), error);
    // The new file has a random name: otherwise two servers with one key would write into one file.
    let new = format!("new.{}", ProcessId::random().map_err(failed)?);
    let mut file = servers.create_new(&new, FILE_MODE)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    servers.rename(&new, &record.key)?;
    Ok(servers.sync()?)
}

/// Returns the records of all servers, in the order of their keys. Files that are no records are
/// left out.
///
/// # Errors
/// [`OwnerError`].
pub fn list_servers(store: &Folder) -> Result<Vec<ServerRecord>, OwnerError> {
    let servers = store.create_folder(SERVERS)?;
    let mut names = servers.entries()?;
    names.sort_unstable();
    let mut records = Vec::new();
    for name in names.iter().filter_map(|name| name.to_str()).filter(|name| is_key(name)) {
        if records.len() == MOST {
            tracing::warn!(most = MOST, "there are more servers than are read");
            break;
        }
        let text = shard::read_text(&servers, name)?;
        if let Some(address) = text.as_deref().and_then(parse) {
            records.push(ServerRecord { key: name.to_owned(), address });
        }
    }
    Ok(records)
}

/// Returns the address in the text of a file.
fn parse(text: &[u8]) -> Option<String> {
    let address = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    is_address(address).then(|| address.to_owned())
}

fn is_key(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=KEY_BYTES).contains(&text.len()) && text.bytes().all(is_part)
}

fn is_address(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic();
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    text.len() <= limits::SITE_ADDRESS_BYTES && text.bytes().all(is_part) && port.is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn servers_are_recorded_and_what_is_none_is_left_out() {
        let temp = tempfile::tempdir().unwrap();
        let store = Folder::open(temp.path()).unwrap();
        assert_eq!(list_servers(&store).unwrap(), []);
        let server = |key: &str, address: &str| ServerRecord {
            key: key.to_owned(),
            address: address.to_owned(),
        };
        let [one, two] = [server("pelago1a", "a.example:7"), server("pelago1b", "[::1]:65535")];
        for record in [&two, &one, &one] {
            record_server(&store, record).unwrap();
        }
        let servers = temp.path().join("servers");
        fs::write(servers.join("pelago1c"), "no address\n").unwrap();
        fs::write(servers.join("pelago1d"), "a:1").unwrap();
        fs::write(servers.join("pelago1e"), "a".repeat(5000)).unwrap();
        fs::write(servers.join("Other"), "a:1\n").unwrap();
        assert_eq!(list_servers(&store).unwrap(), [one, two.clone()]);
        let moved = server("pelago1a", "b.example:8");
        record_server(&store, &moved).unwrap();
        assert_eq!(list_servers(&store).unwrap(), [moved, two]);
        for (key, address) in
            [("", "a:1"), ("../a", "a:1"), ("a", "a"), ("a", "a:70000"), ("a", "a b:1")]
        {
            let refused = record_server(&store, &server(key, address));
            assert!(matches!(refused, Err(OwnerError::Invalid { .. })), "{key} {address}");
        }
    }
}
