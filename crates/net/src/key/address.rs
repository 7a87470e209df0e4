//! The address of a server: its key, its host and its port, as `KEY@HOST:PORT`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::{KeyTextError, PublicKey};

/// The TCP port of a server if its address names none.
pub const DEFAULT_PORT: u16 = 7440;
/// Bytes of a host's name (RFC 1035, 2.3.4, without the root's dot).
const HOST_BYTES: usize = 253;

/// The address of a server: its key, and the host and TCP port where it listens.
///
/// The text is `KEY@HOST:PORT`. An IPv6 address stands in brackets, as in a URL; it may have a zone
/// (`[fe80::1%eth0]`). Without `:PORT` the port is [`DEFAULT_PORT`]. The key is in our own form
/// only: a server makes its key itself, and addresses are stored and compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    key: PublicKey,
    host: String,
    port: u16,
}

/// The reason for which a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has no `@`.
    #[error("an address is KEY@HOST:PORT, and this has no @")]
    NoKey,
    /// The text before the `@` is not a key.
    #[error("the key before @ is wrong")]
    Key(#[from] KeyTextError),
    /// The host is empty, too long, or has a character that no host has.
    #[error("{host:?} is not the name or the IP address of a host")]
    Host {
        /// The text.
        host: String,
    },
    /// An IPv6 address has no brackets, so that its port cannot be distinguished from it.
    #[error("an IPv6 address stands in brackets: KEY@[ADDRESS]:PORT")]
    NoBrackets,
    /// The port is not a number from 1 to 65535.
    #[error("{port:?} is not a port: give a number from 1 to 65535")]
    Port {
        /// The text.
        port: String,
    },
}

impl ServerAddress {
    /// Returns the address with these parts; an IPv6 address as `host` has no brackets.
    ///
    /// # Errors
    /// [`AddressError::Host`], [`AddressError::Port`].
    pub fn new(key: PublicKey, host: &str, port: u16) -> Result<Self, AddressError> {
        let is_valid = if host.contains(':') { is_ipv6(host) } else { is_name(host) };
        if !is_valid {
            return Err(AddressError::Host { host: host.to_owned() });
        }
        if port == 0 {
            return Err(AddressError::Port { port: port.to_string() });
        }
        Ok(Self { key, host: host.to_owned(), port })
    }

    /// Returns the key that the server must prove.
    #[must_use]
    pub const fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the name or IP address of the host, without brackets: `(host, port)` is a
    /// [`std::net::ToSocketAddrs`].
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the TCP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (key, place) = text.split_once('@').ok_or(AddressError::NoKey)?;
        let key = PublicKey::from_own_text(key)?;
        let (host, port) = split(place)?;
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => parse_port(port)?,
        };
        Self::new(key, host, port)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key;
        let host = &self.host;
        let port = self.port;
        if host.contains(':') {
            write!(f, "{key}@[{host}]:{port}")
        } else {
            write!(f, "{key}@{host}:{port}")
        }
    }
}

/// Divides `HOST`, `HOST:PORT`, `[IPV6]` and `[IPV6]:PORT`.
fn split(place: &str) -> Result<(&str, Option<&str>), AddressError> {
    let wrong = || AddressError::Host { host: place.to_owned() };
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        if !host.contains(':') {
            return Err(wrong());
        }
        return match rest.strip_prefix(':') {
            None if rest.is_empty() => Ok((host, None)),
            None => Err(wrong()),
            Some(port) => Ok((host, Some(port))),
        };
    }
    match place.split_once(':') {
        None => Ok((place, None)),
        Some((_, port)) if port.contains(':') => Err(AddressError::NoBrackets),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

/// Parses digits only: `u16::from_str` also takes a sign.
fn parse_port(text: &str) -> Result<u16, AddressError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|_| digits);
    port.ok_or_else(|| AddressError::Port { port: text.to_owned() })
}

/// Returns whether this is a host's name or an IPv4 address. `_` is not allowed in host names, and
/// is used in them.
fn is_name(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label =
        |label: &str| !label.is_empty() && !label.starts_with('-') && label.bytes().all(is_letter);
    host.len() <= HOST_BYTES && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label)
}

/// Returns whether this is an IPv6 address, with or without a zone (RFC 4007, 11).
fn is_ipv6(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let (address, zone) = host.split_once('%').map_or((host, None), |(a, z)| (a, Some(z)));
    let is_zone = |zone: &str| !zone.is_empty() && zone.bytes().all(is_letter);
    host.len() <= HOST_BYTES && address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone)
}

#[cfg(test)]
mod tests {
    use super::super::PrivateKey;
    use super::*;

    fn key() -> PublicKey {
        PrivateKey::from_seed([3; 32]).public()
    }

    fn parse(place: &str) -> Result<ServerAddress, AddressError> {
        format!("{}@{place}", key()).parse()
    }

    #[test]
    fn an_address_comes_back_from_its_text() {
        let cases = [
            ("files.example.org:7441", "files.example.org", 7441),
            ("localhost:1", "localhost", 1),
            ("127.0.0.1:65535", "127.0.0.1", 65_535),
            ("[::1]:7441", "::1", 7441),
            ("[fe80::1%eth0.5]:7441", "fe80::1%eth0.5", 7441),
        ];
        for (place, host, port) in cases {
            let address = parse(place).unwrap();
            assert_eq!((address.key(), address.host(), address.port()), (key(), host, port));
            assert_eq!(address.to_string(), format!("{}@{place}", key()));
        }
    }

    #[test]
    fn the_port_has_a_default() {
        assert_eq!(parse("host").unwrap().port(), DEFAULT_PORT);
        assert_eq!(parse("[::1]").unwrap().to_string(), format!("{}@[::1]:7440", key()));
    }

    #[test]
    fn the_error_names_the_wrong_part() {
        let host = |host: &str| AddressError::Host { host: host.to_owned() };
        let port = |port: &str| AddressError::Port { port: port.to_owned() };
        let cases = [
            ("", host("")),
            (":7440", host("")),
            ("a b:1", host("a b")),
            ("-v:1", host("-v")),
            ("a..b:1", host("a..b")),
            ("user@host:1", host("user@host")),
            ("::1", AddressError::NoBrackets),
            ("fe80::1:7440", AddressError::NoBrackets),
            ("[::1:7440", host("[::1:7440")),
            ("[::1]7440", host("[::1]7440")),
            ("[host]:1", host("[host]:1")),
            ("[::g]:1", host("::g")),
            ("[::1%]:1", host("::1%")),
            ("host:", port("")),
            ("host:0", port("0")),
            ("host:+1", port("+1")),
            ("host:65536", port("65536")),
        ];
        for (place, error) in cases {
            assert_eq!(parse(place), Err(error), "{place}");
        }
        assert_eq!("host:1".parse::<ServerAddress>(), Err(AddressError::NoKey));
        let error = "pelago1@host:1".parse::<ServerAddress>().unwrap_err();
        assert!(matches!(error, AddressError::Key(KeyTextError::Length { .. })), "{error}");
        let line = "ssh-ed25519 AAAA@host:1".parse::<ServerAddress>().unwrap_err();
        assert!(matches!(line, AddressError::Key(KeyTextError::Prefix { .. })), "{line}");
        let long = format!("{}:1", "a".repeat(HOST_BYTES + 1));
        assert!(matches!(parse(&long), Err(AddressError::Host { .. })));
    }
}
