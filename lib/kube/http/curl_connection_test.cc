// Which connections are made, and to whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/http/curl_transport.h"
#include "lib/kube/http/testing/curl_client.h"
#include "lib/kube/testing/raw_server.h"

namespace fusionllm::kube {
namespace {

using testing::Client;
using testing::Echo;
using testing::Get;
using ::testing::HasSubstr;
using testing::RawConnection;
using testing::RawServer;

// As a server that is going away says, and one that spreads its clients over several, now and then.
TEST(CurlConnections, AfterAGoodbyeTheNextWriteTakesANewOne) {
  const RawServer server([](RawConnection& connection) {
    if (!connection.ReadRequest().empty()) connection.Answer(201, "made", "Connection: close\r\n");
    connection.WaitForClose();
  });
  const auto client = Client(server);
  for (int i = 1; i <= 3; ++i) {
    const auto response = client->Send({.method = "POST", .target = "/", .body = "{}"}, {}, {});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->body, "made");
    EXPECT_EQ(server.connections(), i);
  }
}

TEST(CurlConnections, AnAddressOfIpv6IsDialled) {
  if (!RawServer::HasIpv6()) GTEST_SKIP() << "this machine has no address ::1";
  const RawServer server([](RawConnection& connection) { connection.Answer(200, connection.ReadRequest()); }, {}, /*ipv6=*/true);
  const auto response = Client(server)->Send({.target = "/"}, {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->body, HasSubstr(absl::StrCat("Host: [::1]:", server.port(), "\r\n")));
}

TEST(CurlConnections, UnaryCallsShareAConnection) {
  const RawServer server(Echo);
  const auto client = Client(server);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client->Send(Get("/"), {}, {}).ok());
  EXPECT_EQ(server.connections(), 1);
}

// A socket of this process that is connected to that port of this machine; -1 if there is none.
int SocketTo(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer = {};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port)
      return fd;
  }
  return -1;
}

TEST(CurlConnections, TheKernelWatchesOverPeersThatAreGone) {
  const RawServer server(Echo);
  const auto client = Client(server);
  ASSERT_TRUE(client->Send(Get("/"), {}, {}).ok());
  const int socket = SocketTo(server.port());
  ASSERT_GE(socket, 0);
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    return getsockopt(socket, level, name, &value, &size) == 0 ? value : -1;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 30);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 15);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 3);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
}

// Answers the first request of a connection; takes the second and hangs up without a word. Both counted by method.
struct BreakingServer {
  std::atomic<int> posts = 0, gets = 0;
  RawServer server{[this](RawConnection& connection) {
    for (int i = 0; i < 2; ++i) {
      const std::string request = connection.ReadRequest();
      if (request.empty()) return;
      if (absl::StartsWith(request, "POST")) ++posts;
      if (absl::StartsWith(request, "GET")) ++gets;
      if (i == 0) connection.Answer(200, "ok");
    }
  }};
};

TEST(CurlConnections, AWriteWhoseConnectionBreaksIsNotSentAgain) {
  // The server may have created the object: doing it twice is for the caller to decide.
  BreakingServer breaking;
  const auto client = Client(breaking.server);
  const HttpRequest post = {.method = "POST", .target = "/", .body = "{}"};
  ASSERT_TRUE(client->Send(post, {}, {}).ok());
  const absl::Status second = client->Send(post, {}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_EQ(breaking.posts, 2);
}

TEST(CurlConnections, ARefusedConnectionIsUnavailable) {
  CurlTransportOptions options;
  {
    const RawServer server(Echo);
    options.server = server.Url();
  }
  const absl::Status status = (*CurlTransport::Make(options))->Send(Get("/"), {}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// A listener whose queue is full: what comes now is not even refused.
class FullListener {
 public:
  FullListener() {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(in);
    bind(listener_, reinterpret_cast<const sockaddr*>(&in), size);
    listen(listener_, 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&in), &size);
    port_ = ntohs(in.sin_port);
    for (int& waiting : waiting_) {
      waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      (void)connect(waiting, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
    }
  }
  ~FullListener() {
    for (const int waiting : waiting_) close(waiting);
    close(listener_);
  }
  int port() const { return port_; }

 private:
  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int waiting_[8] = {};
  int port_ = 0;
};

TEST(CurlConnections, AConnectionThatDoesNotComeAboutHasADeadlineOfItsOwn) {
  const FullListener full;
  const auto client =
      *CurlTransport::Make({.server = absl::StrCat("http://127.0.0.1:", full.port()), .connect_timeout = absl::Milliseconds(50)});
  // The call's own limit does not end it: it would be the test's.
  const absl::Time begin = absl::Now();
  const absl::Status status = client->Send(Get("/"), {.timeout = absl::Hours(1)}, {}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(absl::Now() - begin, absl::Minutes(2)) << "libcurl itself would wait for five";
  const CurlTransportOptions defaults;
  EXPECT_EQ(defaults.connect_timeout, absl::Seconds(30));
  EXPECT_EQ(defaults.tls_timeout, absl::Seconds(10));
}

TEST(CurlConnections, RedirectsAreNotFollowed) {
  // Else the token would go wherever a hostile server points.
  const RawServer other(Echo);
  const RawServer server([&](RawConnection& connection) {
    connection.ReadRequest();
    connection.Answer(302, "", absl::StrCat("Location: ", other.Url(), "/\r\n"));
  });
  const auto response = Client(server)->Send(Get("/"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->code, 302);
  EXPECT_EQ(other.connections(), 0);
}

TEST(CurlConnections, AProxyIsAskedForTheServer) {
  std::vector<std::string> seen;
  const RawServer proxy([&](RawConnection& connection) {
    seen.push_back(connection.ReadRequest());
    connection.Answer(200, "from the proxy");
  });
  const auto client = *CurlTransport::Make({.server = "http://api.example.invalid:6443", .proxy_url = proxy.Url()});
  const auto response = client->Send(Get("/x"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, "from the proxy");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0], HasSubstr("GET http://api.example.invalid:6443/x HTTP/1.1\r\n"));
  EXPECT_EQ(CurlTransport::Make({.server = "https://a", .proxy_url = "ftp://b"}).status().code(), absl::StatusCode::kInvalidArgument);
}

// By RFC 1928: no authentication, then a name and a port to connect to, for the server's own resolver to look up.
TEST(CurlConnections, SocksProxyGetsServerName) {
  std::string greeting, connect_request;
  const RawServer proxy([&](RawConnection& connection) {
    greeting = connection.ReadBytes();
    connection.Write(std::string("\x05\x00", 2));
    connect_request = connection.ReadBytes();
    connection.Write(std::string("\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", 10));
    connection.Answer(200, connection.ReadRequest());
  });
  const auto client =
      *CurlTransport::Make({.server = "http://api.example.invalid:6443", .proxy_url = absl::StrCat("socks5h://127.0.0.1:", proxy.port())});
  const auto response = client->Send(Get("/x"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(greeting.substr(0, 1), "\x05");
  const std::string name = "api.example.invalid";
  EXPECT_EQ(connect_request,
            absl::StrCat(std::string("\x05\x01\x00\x03", 4), std::string(1, static_cast<char>(name.size())), name, "\x19\x2b"));
  EXPECT_THAT(response->body, HasSubstr("GET /x HTTP/1.1\r\n"));
}

// Sets variables of the environment for one test.
class Environment {
 public:
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  void Set(const std::string& name, const std::string& value) {
    names_.push_back(name);
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> names_;
};

TEST(CurlConnections, TheEnvironmentNamesAProxyAndWhomToReachWithoutIt) {
  const RawServer proxy([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Answer(200, "from the proxy");
  });
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Answer(200, "direct");
  });
  Environment environment;
  environment.Set("http_proxy", proxy.Url());
  EXPECT_EQ(Client(server)->Send(Get("/"), {}, {})->body, "from the proxy");
  environment.Set("no_proxy", "10.0.0.0/8,127.0.0.0/8");
  EXPECT_EQ(Client(server)->Send(Get("/"), {}, {})->body, "direct");
  // What a kubeconfig says goes before.
  EXPECT_EQ(Client(server, {.proxy_url = proxy.Url()})->Send(Get("/"), {}, {})->body, "from the proxy");
}

}  // namespace
}  // namespace fusionllm::kube
