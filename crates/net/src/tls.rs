//! TLS 1.3 with raw public keys (RFC 7250, RFC 8446): both ends prove their Ed25519 keys.
//!
//! A client knows the key of its server and takes no other. A server takes every client whose
//! signature is right, and looks at its list after that, so that it can name to a refused client
//! the key to allow. There are no certificates, no names and no resumption: each connection proves
//! both keys again. In TLS 1.3 the handshake of a client is over before the server has seen the
//! client's key; a failure there reaches the client with its first read.

use std::io;
use std::sync::Arc;

use pelago_wire::Kind;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, CommonState, DigitallySignedStruct,
    DistinguishedName, Error, OtherError, PeerIncompatible, ServerConfig, ServerConnection,
    SignatureScheme,
};

use crate::key::{KEY_BYTES, PrivateKey, PublicKey};

/// The name of our protocol inside TLS (RFC 7301).
pub const ALPN: &[u8] = b"pelago";

/// The bytes before the 32 bytes of an Ed25519 key in its SPKI (RFC 8410, 4): two sequences, the
/// algorithm 1.3.101.112 without parameters, a bit string without unused bits.
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
/// The bytes before the 32 bytes of an Ed25519 seed in PKCS#8 (RFC 8410, 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The reason for which a connection has no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The server has another key than its address says: it is another server, or has a new key.
    #[error("the server has the key {found}, and its address says {wanted}")]
    WrongServer {
        /// The key of the address.
        wanted: PublicKey,
        /// The key that the server proved or claims to have.
        found: PublicKey,
    },
    /// The key of the other end is not an Ed25519 key.
    #[error("the other end has no Ed25519 key")]
    NotEd25519,
    /// The other end speaks no TLS, another version of TLS, or TLS with certificates.
    #[error("the other end is no pelago")]
    NotPelago(#[source] Error),
    /// Another failure of TLS.
    #[error("TLS failed")]
    Tls(#[source] Error),
}

impl TlsError {
    /// Returns the failure of TLS that has caused an I/O error; `None` if it has another cause.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Error>().map(|error| error.clone().into())
    }

    /// Returns what the caller can do about the error.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::WrongServer { .. } | Self::NotEd25519 => Kind::Denied,
            Self::NotPelago(_) => Kind::Invalid,
            Self::Tls(_) => Kind::Unavailable,
        }
    }
}

impl From<Error> for TlsError {
    fn from(error: Error) -> Self {
        match &error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
                match cause.downcast_ref::<WrongServer>() {
                    Some(WrongServer { wanted, found }) => {
                        Self::WrongServer { wanted: *wanted, found: *found }
                    }
                    None => Self::Tls(error),
                }
            }
            Error::InvalidCertificate(CertificateError::BadEncoding) => Self::NotEd25519,
            Error::PeerIncompatible(_)
            | Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::NoApplicationProtocol
            | Error::NoCertificatesPresented => Self::NotPelago(error),
            _ => Self::Tls(error),
        }
    }
}

/// Returns the configuration of a server with this key.
///
/// # Errors
/// [`TlsError::Tls`] if the crypto provider refuses the key.
pub fn server_config(key: &PrivateKey) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyClient { provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(key)?)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// Returns the configuration of a client with this key, for the server with the key `server`.
///
/// # Errors
/// [`TlsError::Tls`] if the crypto provider refuses the key.
pub fn client_config(key: &PrivateKey, server: PublicKey) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(OneServer { provider: provider.clone(), wanted: server });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(
            key,
        )?)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Returns the server's end of a new connection.
///
/// # Errors
/// [`TlsError::Tls`].
pub fn server_connection(config: Arc<ServerConfig>) -> Result<ServerConnection, TlsError> {
    Ok(ServerConnection::new(config)?)
}

/// Returns the client's end of a new connection. The server's name does not matter and is not sent.
///
/// # Errors
/// [`TlsError::Tls`].
pub fn client_connection(config: Arc<ClientConfig>) -> Result<ClientConnection, TlsError> {
    let name = ServerName::try_from("pelago.invalid").expect("a name of DNS");
    Ok(ClientConnection::new(config, name)?)
}

/// Returns the key that the other end has proved, of either end of a connection. Returns `None`
/// before the handshake is complete, and if the other end did not ask for the protocol [`ALPN`].
#[must_use]
pub fn peer_key(connection: &CommonState) -> Option<PublicKey> {
    if connection.is_handshaking() || connection.alpn_protocol() != Some(ALPN) {
        return None;
    }
    match connection.peer_certificates()? {
        [spki] => key_of(spki).ok(),
        _ => None,
    }
}

/// The server has another key than its address says. This error is inside one of rustls.
#[derive(Debug, thiserror::Error)]
#[error("the server has the key {found}, and its address says {wanted}")]
struct WrongServer {
    wanted: PublicKey,
    found: PublicKey,
}

/// The verifier of a client: it takes one server.
#[derive(Debug)]
struct OneServer {
    provider: Arc<CryptoProvider>,
    wanted: PublicKey,
}

impl ServerCertVerifier for OneServer {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = only_key(spki, more)?;
        if found == self.wanted {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongServer { wanted: self.wanted, found };
        Err(CertificateError::Other(OtherError(Arc::new(wrong))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::SupportedVersionsExtensionRequired.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.provider, message, spki, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The verifier of a server: it takes every client that proves a key.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        only_key(spki, more).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::SupportedVersionsExtensionRequired.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.provider, message, spki, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Returns a key in the form with which rustls proves it.
fn certified(key: &PrivateKey) -> Result<Arc<CertifiedKey>, TlsError> {
    let pkcs8 = [PKCS8_HEAD.as_slice(), key.seed()].concat();
    let signer = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))?;
    let spki = CertificateDer::from(spki_of(key.public()));
    Ok(Arc::new(CertifiedKey::new(vec![spki], signer)))
}

fn verify(
    provider: &CryptoProvider,
    message: &[u8],
    spki: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
    let known = &provider.signature_verification_algorithms;
    verify_tls13_signature_with_raw_key(message, &spki, signature, known)
}

fn only_key(spki: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<PublicKey, Error> {
    if more.is_empty() { key_of(spki) } else { Err(CertificateError::BadEncoding.into()) }
}

fn spki_of(key: PublicKey) -> Vec<u8> {
    [SPKI_HEAD.as_slice(), key.as_bytes()].concat()
}

/// Returns the key of an Ed25519 SPKI in its only encoding, 44 bytes. Refuses a key for which
/// everybody can sign: the handshake would prove nothing.
fn key_of(spki: &[u8]) -> Result<PublicKey, Error> {
    let key = spki.strip_prefix(&SPKI_HEAD);
    let key = key.and_then(|key| <[u8; KEY_BYTES]>::try_from(key).ok());
    let key = key.map(PublicKey::new).filter(|key| !key.has_small_order());
    key.ok_or_else(|| CertificateError::BadEncoding.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_encoding() {
        let key = PrivateKey::from_seed([1; KEY_BYTES]).public();
        let spki = spki_of(key);
        assert_eq!(spki.len(), 44);
        assert_eq!(key_of(&spki), Ok(key));
        assert!(key_of(&spki[..43]).is_err());
        assert!(key_of(&[spki.as_slice(), &[0]].concat()).is_err());
        for at in 0..SPKI_HEAD.len() {
            let mut other = spki.clone();
            other[at] ^= 1;
            assert!(key_of(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_key_for_which_everybody_can_sign_proves_nothing() {
        let mut neutral = [0; KEY_BYTES];
        neutral[0] = 1;
        for key in [[0; KEY_BYTES], neutral] {
            assert!(key_of(&spki_of(PublicKey::new(key))).is_err());
        }
    }
}
