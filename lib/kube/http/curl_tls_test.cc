// Whom the client trusts, and who it says it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/http/curl_transport.h"
#include "lib/kube/testing/raw_server.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::kube {
namespace {

using security::CertificateAuthority;
using security::IssuedCertificate;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawConnection;
using testing::RawServer;

CertificateAuthority Authority() { return *CertificateAuthority::Create(); }

IssuedCertificate Issue(const CertificateAuthority& authority, const std::string& name, const std::string& host = "") {
  security::IssueOptions options;
  if (!host.empty()) options.hosts.push_back(host);
  return *authority.Issue(name, options);
}

// Answers with the name in the client's certificate and the request.
void Greet(RawConnection& connection) {
  for (std::string request = connection.ReadRequest(); !request.empty(); request = connection.ReadRequest()) {
    connection.Answer(200, absl::StrCat("hello ", connection.PeerName(), "\n", request));
  }
}

RawServer Serve(const IssuedCertificate& identity, const std::string& client_ca = "") {
  return RawServer(Greet, {identity.certificate_pem, identity.private_key_pem, client_ca});
}

std::function<absl::StatusOr<std::shared_ptr<const TlsMaterial>>()> Always(TlsMaterial material) {
  auto shared = std::make_shared<const TlsMaterial>(std::move(material));
  return [shared] { return shared; };
}

// What is asked here is whom the client trusts, not how soon it knows: a machine with no time to spare must not turn the one answer into
// the other.
constexpr absl::Duration kTimeout = absl::Minutes(10);
constexpr UnaryLimits kPatient = {.timeout = kTimeout};

std::unique_ptr<CurlTransport> Patient(CurlTransportOptions options) {
  options.connect_timeout = options.tls_timeout = kTimeout;
  return *CurlTransport::Make(std::move(options));
}

absl::StatusOr<HttpResponse> Ask(CurlTransportOptions options) {
  return Patient(std::move(options))->Send({.method = "GET", .target = "/"}, kPatient, {});
}

TEST(CurlTls, ACertificateInMemoryNamesTheClient) {
  const CertificateAuthority authority = Authority();
  const IssuedCertificate client = Issue(authority, "operator");
  const RawServer server = Serve(Issue(authority, "api"), authority.certificate_pem());
  const auto response =
      Ask({.server = server.Url(), .tls = Always({authority.certificate_pem(), client.certificate_pem, client.private_key_pem})});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->body, HasSubstr("hello operator\n"));
}

TEST(CurlTls, AServerOfAnotherAuthorityIsNotTrusted) {
  const CertificateAuthority authority = Authority();
  const CertificateAuthority other = Authority();
  const RawServer server = Serve(Issue(authority, "api"));
  const absl::Status status = Ask({.server = server.Url(), .tls = Always({other.certificate_pem(), "", ""})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(Ask({.server = server.Url(), .insecure = true, .tls = Always({other.certificate_pem(), "", ""})}).ok());
  // The machine's own authorities do not know it either.
  EXPECT_EQ(Ask({.server = server.Url()}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CurlTls, ReportsCertificateDatesWithLocalTime) {
  const auto error = [&](absl::Duration issued) {
    const absl::Time then = absl::Now() + issued;
    const CertificateAuthority authority = *CertificateAuthority::Create({.now = then});
    const RawServer server = Serve(*authority.Issue("api", {.validity = absl::Hours(2), .now = then}));
    return Ask({.server = server.Url(), .tls = Always({authority.certificate_pem(), "", ""})}).status();
  };
  for (const absl::Duration off : {absl::Hours(4), absl::Hours(24 * 300)}) {
    const absl::Status early = error(off), late = error(-off);
    EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition) << early;
    EXPECT_THAT(std::string(early.message()), AllOf(HasSubstr("not yet valid"), HasSubstr("the clock of this machine says 2")));
    EXPECT_THAT(std::string(late.message()), AllOf(HasSubstr("expired"), HasSubstr("or the clock is ahead")));
  }
  const RawServer foreign = Serve(Issue(Authority(), "api"));
  const absl::Status status = Ask({.server = foreign.Url(), .tls = Always({Authority().certificate_pem(), "", ""})}).status();
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("clock")));
}

TEST(CurlTls, AServerWithAnotherNameIsNotTrusted) {
  // The chain alone proves nothing: everybody in a cluster can get a certificate of its authority.
  const CertificateAuthority authority = Authority();
  const RawServer server = Serve(Issue(authority, "api"));
  const CurlTransportOptions by_other_name = {
      .server = server.Url(), .tls_server_name = "kubernetes.default", .tls = Always({authority.certificate_pem(), "", ""})};
  EXPECT_EQ(Ask(by_other_name).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CurlTls, TheServersNameMayBeSaidApartFromItsAddress) {
  const CertificateAuthority authority = Authority();
  const RawServer server = Serve(Issue(authority, "api", "kubernetes.default"));
  const auto response =
      Ask({.server = server.Url(), .tls_server_name = "kubernetes.default", .tls = Always({authority.certificate_pem(), "", ""})});
  ASSERT_TRUE(response.ok()) << response.status();
  // Proxies on the way route by the address.
  EXPECT_THAT(response->body, HasSubstr(absl::StrCat("Host: 127.0.0.1:", server.port(), "\r\n")));
}

TEST(CurlTls, ARotatedAuthorityIsTakenUpByTheNextCall) {
  const CertificateAuthority first = Authority();
  const CertificateAuthority second = Authority();
  auto material = std::make_shared<const TlsMaterial>(TlsMaterial{first.certificate_pem(), "", ""});
  const auto transport_to = [&](const RawServer& server) { return Patient({.server = server.Url(), .tls = [&] { return material; }}); };
  const RawServer server = Serve(Issue(second, "api"));
  const auto client = transport_to(server);
  EXPECT_EQ(client->Send({.target = "/"}, kPatient, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  material = std::make_shared<const TlsMaterial>(TlsMaterial{second.certificate_pem(), "", ""});
  EXPECT_TRUE(client->Send({.target = "/"}, kPatient, {}).ok());
}

TEST(CurlTls, ConnectionsCloseOnlyWhenTheCertificateChanges) {
  const CertificateAuthority authority = Authority();
  const RawServer server = Serve(Issue(authority, "api"), authority.certificate_pem());
  const auto identity = [&](const std::string& name) {
    const IssuedCertificate issued = Issue(authority, name);
    return std::make_shared<const TlsMaterial>(TlsMaterial{authority.certificate_pem(), issued.certificate_pem, issued.private_key_pem});
  };
  auto material = identity("one");
  const auto client = Patient({.server = server.Url(), .tls = [&] { return material; }});
  const auto ask = [&] { return client->Send({.target = "/"}, kPatient, {})->body; };
  EXPECT_THAT(ask(), HasSubstr("hello one\n"));
  // Read again, and the same.
  material = std::make_shared<const TlsMaterial>(*material);
  EXPECT_THAT(ask(), HasSubstr("hello one\n"));
  EXPECT_EQ(server.connections(), 1);
  material = identity("two");
  EXPECT_THAT(ask(), HasSubstr("hello two\n"));
  EXPECT_EQ(server.connections(), 2);
}

TEST(CurlTls, AHandshakeThatNeverEndsMeetsItsDeadline) {
  const RawServer server([](RawConnection& connection) { connection.WaitForClose(); });
  const auto client = *CurlTransport::Make(
      {.server = absl::StrCat("https://127.0.0.1:", server.port()), .connect_timeout = kTimeout, .tls_timeout = absl::Milliseconds(50)});
  const absl::Status status = client->Send({.target = "/"}, kPatient, {}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("TLS handshake"));
}

TEST(CurlTls, TlsGoesThroughAProxyAsATunnel) {
  const CertificateAuthority authority = Authority();
  std::mutex mutex;
  std::string asked;
  // Says yes and then nothing: what comes before the server's own answer is not to be taken for it.
  const RawServer proxy([&](RawConnection& connection) {
    {
      const std::lock_guard lock(mutex);
      asked = connection.ReadRequest();
    }
    connection.Write("HTTP/1.1 200 Connection established\r\nX-Proxy: 1\r\n\r\n");
  });
  const absl::Status status = Ask({.server = "https://api.example.invalid:6443", .proxy_url = proxy.Url()}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  const std::lock_guard lock(mutex);
  EXPECT_THAT(asked, HasSubstr("CONNECT api.example.invalid:6443 HTTP/1.1\r\n"));
}

TEST(CurlTls, SoDoesItThroughTheOneThatTheEnvironmentNames) {
  std::mutex mutex;
  std::string asked;
  const RawServer proxy([&](RawConnection& connection) {
    const std::lock_guard lock(mutex);
    asked = connection.ReadRequest();
    connection.Answer(403, "");
  });
  for (const char* name : {"HTTPS_PROXY", "https_proxy"}) {
    setenv(name, proxy.Url().c_str(), 1);
    EXPECT_FALSE(Ask({.server = "https://api.example.invalid:6443"}).ok()) << name;
    unsetenv(name);
    const std::lock_guard lock(mutex);
    EXPECT_THAT(asked, ::testing::StartsWith("CONNECT api.example.invalid:6443 HTTP/1.1\r\n")) << name;
    asked.clear();
  }
}

// Streams of one connection of HTTP/2 would hang together, and share its end.
TEST(CurlTls, NoOtherThanHttp1IsOffered) {
  const CertificateAuthority authority = Authority();
  const RawServer server = Serve(Issue(authority, "api"));
  const auto response = Ask({.server = server.Url(), .tls = Always({authority.certificate_pem(), "", ""})});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->body, HasSubstr("GET / HTTP/1.1\r\n"));
  EXPECT_THAT(server.offered_protocols(), ElementsAre("http/1.1"));
}

}  // namespace
}  // namespace fusionllm::kube
