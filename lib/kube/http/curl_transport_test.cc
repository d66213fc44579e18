// Each test is a way in which a server or the network has failed somebody's client.
#include "lib/kube/http/curl_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// Deadlines that a test waits out for real are this long; those that must not matter are the defaults.
constexpr absl::Duration kSoon = absl::Milliseconds(50);

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
    // Gets the headers before the first byte of the body.
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
