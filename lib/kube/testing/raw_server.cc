#include "lib/kube/testing/raw_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fusionllm::kube::testing {
namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "raw_server: %s\n", what);
  std::abort();
}

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

std::unique_ptr<X509, Free> Certificate(const std::string& pem) {
  const std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return std::unique_ptr<X509, Free>(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

SSL_CTX* Context(const RawServerTls& tls) {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  const auto certificate = Certificate(tls.certificate_pem);
  const std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(tls.key_pem.data(), static_cast<int>(tls.key_pem.size())));
  const std::unique_ptr<EVP_PKEY, Free> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  Check(certificate != nullptr && key != nullptr, "the server's certificate or key is no PEM");
  Check(SSL_CTX_use_certificate(context, certificate.get()) == 1 && SSL_CTX_use_PrivateKey(context, key.get()) == 1, "certificate and key");
  if (!tls.client_ca_pem.empty()) {
    const auto ca = Certificate(tls.client_ca_pem);
    Check(ca != nullptr && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.get()) == 1, "the clients' authority");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

class PlainConnection : public RawConnection {
 public:
  explicit PlainConnection(int socket) : socket_(socket) {}

 private:
  long Read(char* buffer, size_t size) override { return recv(socket_, buffer, size, 0); }
  long WriteSome(const char* bytes, size_t size) override { return send(socket_, bytes, size, MSG_NOSIGNAL); }
  const int socket_;
};

class TlsConnection : public RawConnection {
 public:
  TlsConnection(SSL_CTX* context, int socket) : ssl_(SSL_new(context)) { SSL_set_fd(ssl_.get(), socket); }
  bool Accept() { return SSL_accept(ssl_.get()) == 1; }
  std::string PeerName() const override {
    const std::unique_ptr<X509, Free> peer(SSL_get1_peer_certificate(ssl_.get()));
    if (peer == nullptr) return "";
    char name[256] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(peer.get()), NID_commonName, name, sizeof(name));
    return name;
  }

 private:
  long Read(char* buffer, size_t size) override { return SSL_read(ssl_.get(), buffer, static_cast<int>(size)); }
  long WriteSome(const char* bytes, size_t size) override { return SSL_write(ssl_.get(), bytes, static_cast<int>(size)); }
  const std::unique_ptr<SSL, Free> ssl_;
};

// A socket on a free port of 127.0.0.1 or ::1; -1 where there is no such address.
int BindLoopback(bool ipv6) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  const int listener = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int bound =
      ipv6 ? bind(listener, reinterpret_cast<sockaddr*>(&v6), sizeof(v6)) : bind(listener, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  if (bound == 0) return listener;
  if (listener >= 0) close(listener);
  return -1;
}

size_t ContentLength(absl::string_view head) {
  size_t length = 0;
  for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
    if (absl::StartsWithIgnoreCase(line, "content-length:")) {
      Check(absl::SimpleAtoi(absl::StripAsciiWhitespace(line.substr(15)), &length), "Content-Length");
    }
  }
  return length;
}

}  // namespace

std::string RawConnection::ReadRequest() {
  while (true) {
    const size_t end = buffer_.find("\r\n\r\n");
    if (end != std::string::npos) {
      const size_t size = end + 4 + ContentLength(absl::string_view(buffer_).substr(0, end));
      if (buffer_.size() >= size) {
        std::string request = buffer_.substr(0, size);
        buffer_.erase(0, size);
        return request;
      }
    }
    char bytes[4096];
    const long got = Read(bytes, sizeof(bytes));
    if (got <= 0) return "";
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

std::string RawConnection::ReadBytes() {
  if (!buffer_.empty()) return std::exchange(buffer_, "");
  char bytes[4096];
  const long got = Read(bytes, sizeof(bytes));
  return got <= 0 ? "" : std::string(bytes, static_cast<size_t>(got));
}

bool RawConnection::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const long sent = WriteSome(bytes.data(), bytes.size());
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawConnection::Answer(int code, absl::string_view body, absl::string_view headers) {
  return Write(absl::StrCat("HTTP/1.1 ", code, " X\r\nContent-Length: ", body.size(), "\r\n", headers, "\r\n", body));
}

void RawConnection::WaitForClose() {
  char bytes[4096];
  while (Read(bytes, sizeof(bytes)) > 0) {
  }
}

RawServer::RawServer(Handler handler, const RawServerTls& tls, bool ipv6) : handler_(std::move(handler)), ipv6_(ipv6) {
  if (!tls.certificate_pem.empty()) {
    // OpenSSL writes to sockets without MSG_NOSIGNAL.
    std::signal(SIGPIPE, SIG_IGN);
    tls_ = Context(tls);
    const auto record = [](SSL*, const unsigned char**, unsigned char*, const unsigned char* offer, unsigned size, void* self) {
      auto& server = *static_cast<RawServer*>(self);
      const base::MutexLock lock(server.mutex_);
      server.offered_protocols_.clear();
      // Each after its length (RFC 7301, section 3.1).
      for (unsigned at = 0; at < size && at + offer[at] < size; at += 1 + offer[at]) {
        server.offered_protocols_.emplace_back(reinterpret_cast<const char*>(offer + at + 1), offer[at]);
      }
      return SSL_TLSEXT_ERR_NOACK;
    };
    SSL_CTX_set_alpn_select_cb(static_cast<SSL_CTX*>(tls_), record, this);
  }
  listener_ = BindLoopback(ipv6);
  Check(listener_ >= 0 && listen(listener_, 64) == 0, "cannot listen");
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  Check(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  port_ = ntohs(ipv6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port : reinterpret_cast<sockaddr_in&>(address).sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

RawServer::~RawServer() {
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  }
  accepting_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
  SSL_CTX_free(static_cast<SSL_CTX*>(tls_));
}

std::vector<std::string> RawServer::offered_protocols() const {
  const base::MutexLock lock(mutex_);
  return offered_protocols_;
}

bool RawServer::HasIpv6() {
  const int listener = BindLoopback(/*ipv6=*/true);
  if (listener >= 0) close(listener);
  return listener >= 0;
}

std::string RawServer::Url() const {
  return absl::StrCat(tls_ == nullptr ? "http" : "https", ipv6_ ? "://[::1]:" : "://127.0.0.1:", port_);
}

void RawServer::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const base::MutexLock lock(mutex_);
    if (stopping_ || socket < 0) {
      if (socket >= 0) close(socket);
      if (stopping_) return;
      continue;
    }
    // As API servers do: events of a watch, to which the client says nothing, do not wait for each other's acknowledgement.
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    ++connections_;
    sockets_.push_back(socket);
    JoinEnded();
    threads_.emplace_back([this, socket] { Serve(socket); });
  }
}

void RawServer::Serve(int socket) {
  if (tls_ == nullptr) {
    PlainConnection connection(socket);
    handler_(connection);
  } else {
    TlsConnection connection(static_cast<SSL_CTX*>(tls_), socket);
    if (connection.Accept()) handler_(connection);
  }
  const base::MutexLock lock(mutex_);
  sockets_.erase(std::find(sockets_.begin(), sockets_.end(), socket));
  close(socket);
  ended_.push_back(std::this_thread::get_id());
}

void RawServer::JoinEnded() {
  for (const std::thread::id id : std::exchange(ended_, {})) {
    const auto thread = std::find_if(threads_.begin(), threads_.end(), [&](const std::thread& one) { return one.get_id() == id; });
    thread->join();
    threads_.erase(thread);
  }
}

}  // namespace fusionllm::kube::testing
