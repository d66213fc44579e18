// Each test is a way in which a server or the network has failed somebody's client.
#include "lib/kube/http/curl_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/testing/raw_server.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RawConnection;
using testing::RawServer;

// Deadlines that a test waits out for real are this long; those that must not matter are the defaults.
constexpr absl::Duration kSoon = absl::Milliseconds(50);

std::unique_ptr<CurlTransport> Client(const RawServer& server, CurlTransportOptions options = {}) {
  if (options.server.empty()) options.server = server.Url();
  auto transport = CurlTransport::Make(std::move(options));
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

HttpRequest Get(const std::string& target) { return {.method = "GET", .target = target}; }

class Collector : public StreamSink {
 public:
  absl::Status OnOpen(const HttpResponse& head) override {
    opened = true;
    code = head.code;
    return on_open ? on_open() : absl::OkStatus();
  }
  absl::Status OnData(absl::string_view chunk) override {
    data.append(chunk.data(), chunk.size());
    return on_data ? on_data() : absl::OkStatus();
  }
  absl::Duration IdleTimeout() const override { return idle_timeout; }

  bool opened = false;
  int code = 0;
  std::string data;
  absl::Duration idle_timeout = absl::InfiniteDuration();
  std::function<absl::Status()> on_open, on_data;
};

// Answers every request with its own text.
void Echo(RawConnection& connection) {
  for (std::string request = connection.ReadRequest(); !request.empty(); request = connection.ReadRequest())
    connection.Answer(200, request);
}

TEST(CurlTransport, SendsWhatItIsGiven) {
  const RawServer server(Echo);
  const auto client = Client(server);
  const auto response = client->Send({.method = "PATCH",
                                      .target = "/api/v1/x?a=b%2Cc",
                                      .headers = {{"Content-Type", "application/apply-patch+yaml"}},
                                      .body = "{\"a\":1}"},
                                     {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->code, 200);
  EXPECT_THAT(response->body, HasSubstr("PATCH /api/v1/x?a=b%2Cc HTTP/1.1\r\n"));
  EXPECT_THAT(response->body, HasSubstr("Content-Type: application/apply-patch+yaml\r\n"));
  EXPECT_THAT(response->body, HasSubstr("\r\n\r\n{\"a\":1}"));
  EXPECT_THAT(response->body, ::testing::Not(HasSubstr("Expect:")));
  EXPECT_THAT(response->body, HasSubstr("Accept-Encoding: gzip"));
}

TEST(CurlTransport, KeepsTheBasePathOfTheServer) {
  const RawServer server(Echo);
  const auto client = Client(server, {.server = server.Url() + "/k8s/clusters/c-1/"});
  const auto response = client->Send(Get("/api/v1/pods"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->body, HasSubstr("GET /k8s/clusters/c-1/api/v1/pods HTTP/1.1\r\n"));
}

TEST(CurlTransport, EncodedSlashesAndDotsAreSentAsTheyAre) {
  const RawServer server(Echo);
  const auto response = Client(server)->Send(Get("/a%2F..%2Fb/../c"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->body, HasSubstr("GET /a%2F..%2Fb/../c HTTP/1.1\r\n"));
}

TEST(CurlTransport, UnaryCallsShareAConnection) {
  const RawServer server(Echo);
  const auto client = Client(server);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client->Send(Get("/"), {}, {}).ok());
  EXPECT_EQ(server.connections(), 1);
}

TEST(CurlTransport, AStreamGoesOnWhereAnotherHasJustEnded) {
  const RawServer server(Echo);
  const auto client = Client(server, {.fresh_for = absl::InfiniteDuration()}),
             careful = Client(server, {.fresh_for = absl::ZeroDuration()});
  for (const char* target : {"/list", "/watch"}) {
    Collector sink;
    ASSERT_TRUE(client->Stream(Get(target), {}, sink, {}).ok());
    EXPECT_THAT(sink.data, HasSubstr(absl::StrCat("GET ", target, " HTTP/1.1\r\n")));
  }
  EXPECT_EQ(server.connections(), 1);
  ASSERT_TRUE(client->Send(Get("/"), {}, {}).ok());
  EXPECT_EQ(server.connections(), 1) << "nor do other calls need one of their own then";
  Collector sink;
  ASSERT_TRUE(careful->Send(Get("/"), {}, {}).ok());
  ASSERT_TRUE(careful->Stream(Get("/list"), {}, sink, {}).ok());
  EXPECT_EQ(server.connections(), 3);
}

TEST(CurlTransport, AStuckStreamHoldsUpNoOtherCall) {
  const RawServer server([](RawConnection& connection) {
    if (!absl::StrContains(connection.ReadRequest(), "watch")) {
      connection.Answer(200, "ok");
    } else {
      connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      connection.WaitForClose();
    }
  });
  const auto client = Client(server);
  std::stop_source stop;
  std::mutex mutex;
  std::condition_variable changed;
  bool opened = false;
  absl::Status ended;
  std::thread watcher([&] {
    Collector sink;
    sink.on_open = [&] {
      const std::lock_guard lock(mutex);
      opened = true;
      changed.notify_all();
      return absl::OkStatus();
    };
    ended = client->Stream(Get("/watch"), {}, sink, stop.get_token()).status();
  });
  {
    // Told of the headers before the first byte of the body.
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return opened; });
  }
  EXPECT_EQ(client->Send(Get("/"), {}, {})->body, "ok");
  stop.request_stop();
  watcher.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
}

TEST(CurlTransport, StopEndsACallThatTheServerNeverAnswers) {
  std::stop_source stop;
  const RawServer server([&](RawConnection& connection) {
    connection.ReadRequest();
    stop.request_stop();
    connection.WaitForClose();
  });
  const absl::Status status = Client(server)->Send(Get("/"), {.timeout = absl::Hours(1)}, stop.get_token()).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(CurlTransport, ASilentServerMeetsTheDeadline) {
  const RawServer server([](RawConnection& connection) { connection.WaitForClose(); });
  const auto client = Client(server);
  const absl::Status unary = client->Send(Get("/x?secret=1"), {.timeout = kSoon}, {}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(unary)) << unary;
  EXPECT_THAT(std::string(unary.message()), HasSubstr("no complete answer within 50ms"));
  EXPECT_THAT(std::string(unary.message()), ::testing::Not(HasSubstr("secret")));
  Collector sink;
  const absl::Status stream = client->Stream(Get("/"), {.header_timeout = kSoon}, sink, {}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream)) << stream;
  EXPECT_THAT(std::string(stream.message()), HasSubstr("did not begin to answer"));
}

TEST(CurlTransport, AServerThatTricklesMeetsTheTotalDeadline) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (connection.Write("x")) std::this_thread::yield();
  });
  const absl::Status status = Client(server)->Send(Get("/"), {.timeout = kSoon}, {}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST(CurlTransport, AStreamThatFallsSilentIsDead) {
  // Alive as a kernel sees it, as behind a load balancer: only the deadline in between events can tell.
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    connection.WaitForClose();
  });
  Collector sink;
  sink.on_data = [&] {
    // As after the first bookmark: before it there is no idle deadline.
    sink.idle_timeout = kSoon;
    return absl::OkStatus();
  };
  const absl::Status status = Client(server)->Stream(Get("/"), {.body_timeout = absl::Hours(1)}, sink, {}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("silent for 50ms"));
  EXPECT_EQ(sink.data, "hello");
}

TEST(CurlTransport, AStreamThatTheServerForgetsToEndMeetsItsDeadline) {
  // Never silent for long, and never over. Its time counts from the status line: until there the server may have taken minutes.
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (connection.Write("1\r\n\n\r\n")) std::this_thread::yield();
  });
  Collector sink;
  const absl::Status status = Client(server)->Stream(Get("/"), {.body_timeout = kSoon}, sink, {}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not end within 50ms"));
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

TEST(CurlTransport, TheKernelWatchesOverPeersThatAreGone) {
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

TEST(CurlTransport, AStreamIsHandedOverAsItComes) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; ++i) connection.Write("4\r\nabc\n\r\n");
    connection.Write("0\r\n\r\n");
    connection.WaitForClose();
  });
  Collector sink;
  const auto head = Client(server)->Stream(Get("/"), {}, sink, {});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(sink.data, "abc\nabc\nabc\n");
  EXPECT_EQ(head->code, 200);
  EXPECT_EQ(head->body, "");
}

// What is read at once is memory that a watch holds for as long as it waits.
TEST(CurlTransport, AStreamIsReadInSmallPieces) {
  const std::string much(size_t{256} << 10, 'x');
  const RawServer server([&](RawConnection& connection) {
    connection.ReadRequest();
    connection.Answer(200, much);
  });
  Collector sink;
  size_t before = 0, largest = 0;
  sink.on_data = [&] {
    largest = std::max(largest, sink.data.size() - before);
    before = sink.data.size();
    return absl::OkStatus();
  };
  ASSERT_TRUE(Client(server)->Stream(Get("/"), {}, sink, {}).ok());
  EXPECT_EQ(sink.data, much);
  EXPECT_LE(largest, size_t{4} << 10);
}

TEST(CurlTransport, AStreamCutInTheMiddleIsAnError) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n9\r\nwor");
  });
  Collector sink;
  const absl::Status status = Client(server)->Stream(Get("/"), {}, sink, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(CurlTransport, ARefusedStreamIsReturnedWhole) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Answer(410, "gone");
  });
  Collector sink;
  const auto response = Client(server)->Stream(Get("/"), {}, sink, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->code, 410);
  EXPECT_EQ(response->body, "gone");
  EXPECT_FALSE(sink.opened);
  EXPECT_EQ(sink.data, "");
}

TEST(CurlTransport, TheSinkCanEndAStream) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    connection.WaitForClose();
  });
  Collector sink;
  sink.on_data = [] { return absl::DataLossError("garbage"); };
  const absl::Status status = Client(server)->Stream(Get("/"), {}, sink, {}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST(CurlTransport, AHugeAnswerIsCutOff) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = absl::StrCat("1000\r\n", std::string(4096, 'x'), "\r\n");
    while (connection.Write(chunk)) {
    }
  });
  const absl::Status status = Client(server)->Send(Get("/"), {.max_response_bytes = 100'000}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(CurlTransport, AnswersMayBeCompressedAndTheLimitCountsWhatTheyHold) {
  const std::string bomb = Gzip(std::string(10 << 20, 'x'));
  const RawServer server([&](RawConnection& connection) {
    for (std::string request = connection.ReadRequest(); !request.empty(); request = connection.ReadRequest()) {
      connection.Answer(200, absl::StrContains(request, "bomb") ? bomb : Gzip("hello"), "Content-Encoding: gzip\r\n");
    }
  });
  const auto client = Client(server);
  EXPECT_EQ(client->Send(Get("/"), {}, {})->body, "hello");
  ASSERT_LT(bomb.size(), 100'000u);
  EXPECT_EQ(client->Send(Get("/bomb"), {.max_response_bytes = 100'000}, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(CurlTransport, EndlessHeadersAreCutOff) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\n");
    while (connection.Write(absl::StrCat("X-Long: ", std::string(1000, 'x'), "\r\n"))) {
    }
  });
  EXPECT_EQ(Client(server)->Send(Get("/"), {}, {}).status().code(), absl::StatusCode::kResourceExhausted);
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

TEST(CurlTransport, AWriteWhoseConnectionBreaksIsNotSentAgain) {
  // The server may have created the object: doing it twice is for the caller to decide.
  BreakingServer breaking;
  const auto client = Client(breaking.server);
  const HttpRequest post = {.method = "POST", .target = "/", .body = "{}"};
  ASSERT_TRUE(client->Send(post, {}, {}).ok());
  const absl::Status second = client->Send(post, {}, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_EQ(breaking.posts, 2);
}

TEST(CurlTransport, ARefusedConnectionIsUnavailable) {
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

TEST(CurlTransport, AConnectionThatDoesNotComeAboutHasADeadlineOfItsOwn) {
  const FullListener full;
  const auto client = *CurlTransport::Make({.server = absl::StrCat("http://127.0.0.1:", full.port()), .connect_timeout = kSoon});
  // The call's own limit does not end it: it would be the test's.
  const absl::Time begin = absl::Now();
  const absl::Status status = client->Send(Get("/"), {.timeout = absl::Hours(1)}, {}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(absl::Now() - begin, absl::Minutes(2)) << "libcurl itself would wait for five";
  const CurlTransportOptions defaults;
  EXPECT_EQ(defaults.connect_timeout, absl::Seconds(30));
  EXPECT_EQ(defaults.tls_timeout, absl::Seconds(10));
}

TEST(CurlTransport, RedirectsAreNotFollowed) {
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

TEST(CurlTransport, HeadersOfTheAnswerAreFoundInAnyCase) {
  const RawServer server([](RawConnection& connection) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n");
    connection.Answer(429, "", "retry-after:  7 \r\n");
  });
  const auto response = Client(server)->Send(Get("/"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->Header("Retry-After"), "7");
  EXPECT_EQ(response->Header("X-Early"), "");
}

TEST(CurlTransport, WhatCannotBeSentIsRefused) {
  const RawServer server(Echo);
  const auto client = Client(server);
  const auto code = [&](const HttpRequest& request) { return client->Send(request, {}, {}).status().code(); };
  EXPECT_EQ(code(Get("no-slash")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Get("/a b")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Get("/a\r\nHost: x")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.method = "GET", .target = "/", .headers = {{"A", "b\r\nC: d"}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.method = "POST", .target = "/", .body = std::string(kMaxRequestBytes + 1, 'x')}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(server.connections(), 0);
}

TEST(CurlTransport, AProxyIsAskedForTheServer) {
  std::vector<std::string> seen;
  const RawServer proxy([&](RawConnection& connection) {
    seen.push_back(connection.ReadRequest());
    connection.Answer(200, "from the proxy");
  });
  const RawServer server(Echo);
  const auto response = Client(server, {.server = "http://api.example.invalid:6443", .proxy_url = proxy.Url()})->Send(Get("/x"), {}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, "from the proxy");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0], HasSubstr("GET http://api.example.invalid:6443/x HTTP/1.1\r\n"));
  EXPECT_EQ(CurlTransport::Make({.server = "https://a", .proxy_url = "ftp://b"}).status().code(), absl::StatusCode::kInvalidArgument);
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

TEST(CurlTransport, TheEnvironmentNamesAProxyAndWhomToReachWithoutIt) {
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

TEST(CurlTransport, ListsMayComeCompressedAndWatchesNot) {
  const RawServer server([](RawConnection& connection) {
    const bool asked = absl::StrContains(connection.ReadRequest(), "Accept-Encoding");
    connection.Answer(200, asked ? Gzip("asked") : "not asked", asked ? "Content-Encoding: gzip\r\n" : "");
  });
  Collector list, watch;
  ASSERT_TRUE(Client(server)->Stream(Get("/"), {.compressed = true}, list, {}).ok());
  ASSERT_TRUE(Client(server)->Stream(Get("/"), {}, watch, {}).ok());
  EXPECT_EQ(list.data, "asked");
  EXPECT_EQ(watch.data, "not asked");
}

}  // namespace
}  // namespace fusionllm::kube
