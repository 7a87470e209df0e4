//! TLS over real sockets of this machine: the keys that both ends prove, and refusals.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pelago_net::key::{PrivateKey, PublicKey};
use pelago_net::tls::{self, TlsError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error,
    SignatureScheme,
};

/// A deadline for events that must come; no test waits for it.
const DEADLINE: Duration = Duration::from_secs(60);

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

/// Returns the two ends of a connection.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(DEADLINE)).unwrap();
    }
    (near, far)
}

/// Completes the handshake, and exchanges a byte each way. Returns the peer's key.
fn talk(connection: &mut Connection, socket: &mut TcpStream) -> io::Result<Option<PublicKey>> {
    assert_eq!(tls::peer_key(connection), None, "no key is known before the handshake");
    connection.complete_io(socket)?;
    connection.writer().write_all(&[7])?;
    connection.complete_io(socket)?;
    let mut byte = [0];
    while let Err(error) = connection.reader().read_exact(&mut byte) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        connection.complete_io(socket)?;
    }
    assert_eq!(byte, [7]);
    Ok(tls::peer_key(connection))
}

/// The results of a connection at the client and at the server with key 1.
type Ends = (io::Result<Option<PublicKey>>, io::Result<Option<PublicKey>>);

fn connect(client: ClientConnection) -> Ends {
    let (mut near, mut far) = sockets();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let config = tls::server_config(&key(1)).unwrap();
            let mut connection = Connection::from(tls::server_connection(config).unwrap());
            talk(&mut connection, &mut far)
        });
        let client = talk(&mut Connection::from(client), &mut near);
        // The server may wait for more bytes of a client that has given up.
        drop(near);
        (client, server.join().unwrap())
    })
}

fn connect_as(client: &PrivateKey, server: PublicKey) -> Ends {
    let config = tls::client_config(client, server).unwrap();
    connect(tls::client_connection(config).unwrap())
}

fn tls_error(ended: &io::Result<Option<PublicKey>>) -> TlsError {
    let error = ended.as_ref().unwrap_err();
    TlsError::of_io(error).unwrap_or_else(|| panic!("not a failure of TLS: {error}"))
}

#[test]
fn both_ends_learn_the_key_of_the_other() {
    let (client, server) = connect_as(&key(2), key(1).public());
    assert_eq!(client.unwrap(), Some(key(1).public()));
    assert_eq!(server.unwrap(), Some(key(2).public()));
}

#[test]
fn a_server_with_another_key_is_refused() {
    let (client, server) = connect_as(&key(2), key(3).public());
    match tls_error(&client) {
        TlsError::WrongServer { wanted, found } => {
            assert_eq!((wanted, found), (key(3).public(), key(1).public()));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(tls_error(&server), TlsError::Tls(Error::AlertReceived(_))), "{server:?}");
}

/// A client that has the key of another machine, but not its private half.
#[test]
fn a_key_without_its_private_half_is_refused() {
    let spki = |key: &PrivateKey| {
        let head = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
        [head.as_slice(), key.public().as_bytes()].concat()
    };
    let pretend = || {
        let certified = CertifiedKey::new(vec![spki(&key(2)).into()], signer(&[9; 32]));
        AlwaysResolvesClientRawPublicKeys::new(Arc::new(certified))
    };
    let (client, server) = connect(foreign(true, pretend()));
    assert!(client.is_err());
    match tls_error(&server) {
        TlsError::Tls(Error::InvalidCertificate(rustls::CertificateError::BadSignature)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn certificates_are_refused() {
    for (takes_raw_keys, what) in [(false, "of the server"), (true, "of the client")] {
        let (client, server) = connect(foreign(takes_raw_keys, Certificate));
        assert!(client.is_err(), "{what}");
        assert!(matches!(tls_error(&server), TlsError::NotPelago(_)), "{what}: {server:?}");
    }
}

#[test]
fn a_client_without_a_key_is_refused() {
    let config = builder(true).with_no_client_auth();
    let (client, server) = connect(connection(config));
    assert!(client.is_err());
    assert!(matches!(tls_error(&server), TlsError::NotPelago(_)), "{server:?}");
}

/// A client of another protocol, which has a key: its key is not reported.
#[test]
fn another_protocol_is_refused() {
    let with_protocols = |protocols: &[&[u8]]| {
        let mut config =
            ClientConfig::clone(&tls::client_config(&key(2), key(1).public()).unwrap());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        connect(tls::client_connection(Arc::new(config)).unwrap())
    };
    let (client, server) = with_protocols(&[b"h2"]);
    assert!(matches!(tls_error(&server), TlsError::NotPelago(Error::NoApplicationProtocol)));
    assert!(client.is_err());
    let (_, server) = with_protocols(&[]);
    assert_eq!(server.unwrap(), None);
}

/// Sends bytes of another handshake. Returns the server's error and its answer.
fn send(bytes: &[u8]) -> (TlsError, Vec<u8>) {
    let (mut near, mut far) = sockets();
    near.write_all(bytes).unwrap();
    let config = tls::server_config(&key(1)).unwrap();
    let mut connection = Connection::from(tls::server_connection(config).unwrap());
    let ended = talk(&mut connection, &mut far);
    // Unread bytes would turn the end of the connection into a reset.
    far.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).unwrap();
    (tls_error(&ended), answer)
}

/// A ClientHello of TLS 1.2 (RFC 5246, 7.4.1.2): no extension `supported_versions`.
#[test]
fn tls_1_2_is_refused() {
    let mut hello = vec![3, 3];
    hello.extend([5; 32]);
    // No session; two cipher suites (ECDHE-ECDSA and ECDHE-RSA with AES-128-GCM); no compression.
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    // Groups: X25519. Signatures: Ed25519.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 8, 7];
    hello.extend([0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut record = vec![22, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend(hello);
    let (error, answer) = send(&record);
    assert!(matches!(error, TlsError::NotPelago(Error::PeerIncompatible(_))), "{error:?}");
    // A fatal alert.
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, u8::from(AlertDescription::ProtocolVersion)]);
}

#[test]
fn what_is_no_tls_is_refused() {
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0; 64], &[0xff; 64]] {
        let (error, _) = send(bytes);
        assert!(matches!(error, TlsError::NotPelago(_)), "{error:?}");
    }
}

/// The server's end speaks no TLS; the client notices that by itself.
#[test]
fn a_server_without_tls_is_refused() {
    let (mut near, mut far) = sockets();
    far.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
    let config = tls::client_config(&key(2), key(1).public()).unwrap();
    let mut connection = Connection::from(tls::client_connection(config).unwrap());
    let ended = talk(&mut connection, &mut near);
    assert!(matches!(tls_error(&ended), TlsError::NotPelago(_)), "{ended:?}");
}

/// No part of a connection can be used for another one.
#[test]
fn no_session_is_resumed() {
    let config = tls::client_config(&key(2), key(1).public()).unwrap();
    for _ in 0..2 {
        let mut client = tls::client_connection(config.clone()).unwrap();
        assert!(client.early_data().is_none());
        let (mut near, mut far) = sockets();
        thread::scope(|scope| {
            scope.spawn(move || {
                let config = tls::server_config(&key(1)).unwrap();
                let mut connection = Connection::from(tls::server_connection(config).unwrap());
                talk(&mut connection, &mut far).unwrap();
            });
            let mut stream = rustls::Stream::new(&mut client, &mut near);
            stream.write_all(&[7]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        });
        assert_eq!(client.tls13_tickets_received(), 0);
        assert_eq!(client.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}

/// Returns another client. It takes any server.
fn foreign(takes_raw_keys: bool, resolver: impl ResolvesClientCert + 'static) -> ClientConnection {
    connection(builder(takes_raw_keys).with_client_cert_resolver(Arc::new(resolver)))
}

fn connection(mut config: ClientConfig) -> ClientConnection {
    config.alpn_protocols = vec![tls::ALPN.to_vec()];
    ClientConnection::new(Arc::new(config), ServerName::try_from("host.invalid").unwrap()).unwrap()
}

fn builder(
    takes_raw_keys: bool,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer { takes_raw_keys }))
}

fn signer(seed: &[u8; 32]) -> Arc<dyn rustls::sign::SigningKey> {
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let pkcs8 = [head.as_slice(), seed].concat();
    ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).unwrap()
}

/// Offers a certificate, no raw key.
#[derive(Debug)]
struct Certificate;

impl ResolvesClientCert for Certificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let certificate = CertificateDer::from(vec![0x30, 0]);
        Some(Arc::new(CertifiedKey::new(vec![certificate], signer(&[9; 32]))))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Takes any server.
#[derive(Debug)]
struct AnyServer {
    takes_raw_keys: bool,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        panic!("TLS 1.2 is not compiled in")
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.takes_raw_keys
    }
}
