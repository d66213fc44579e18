#include "lib/daemon/monitoring_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/daemon/testing/http_get.h"

namespace fusionllm::daemon {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::Status Fine() { return absl::OkStatus(); }

std::unique_ptr<MonitoringServer> Serve(MonitoringHandlers handlers) {
  auto server = MonitoringServer::Start("127.0.0.1:0", std::move(handlers));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// Of servers in this process, those included that have been joined and are about to be gone.
size_t Threads() {
  size_t threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);  // nothing, of one that is gone
    if (name == kMonitoringThread) ++threads;
  }
  return threads;
}

TEST(MonitoringServerTest, AnswersScrapesAndProbes) {
  const auto server = Serve({[] { return std::string("fusionllm_x 1\n"); }, Fine, Fine});
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT(server->address(), Not(EndsWith(":0")));
  const HttpResponse metrics = HttpGet(server->address(), "/metrics");
  EXPECT_EQ(metrics.code, 200);
  EXPECT_EQ(metrics.body, "fusionllm_x 1\n");
  EXPECT_THAT(metrics.head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  for (const char* path : {"/healthz", "/readyz"}) {
    EXPECT_EQ(HttpGet(server->address(), path).code, 200) << path;
    EXPECT_EQ(HttpGet(server->address(), path).body, "ok\n") << path;
  }
}

TEST(MonitoringServerTest, ListensOnAddressesOfIpv6) {
  for (const char* address : {"[::1]:0", "[::]:0"}) {
    const auto server = MonitoringServer::Start(address, {[] { return std::string(); }, Fine, Fine});
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string got = (*server)->address();
    EXPECT_EQ(got.substr(0, got.rfind(':')), std::string(address).substr(0, std::string(address).rfind(':')));
    const std::string port = got.substr(got.rfind(':'));
    EXPECT_NE(port, ":0");
    EXPECT_EQ(HttpGet("[::1]" + port, "/healthz").code, 200) << address;
    EXPECT_EQ(HttpGet("127.0.0.1" + port, "/healthz").code, std::string(address) == "[::]:0" ? 200 : 0) << address;
    const auto second = MonitoringServer::Start(got, {});
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
  }
}

TEST(MonitoringServerTest, ShowsProgressWhereThereIsAny) {
  const auto server = Serve({[] { return std::string(); }, Fine, Fine, [] { return std::string("{\"step\":3}"); }});
  const HttpResponse page = HttpGet(server->address(), "/progress");
  EXPECT_EQ(page.code, 200);
  EXPECT_EQ(page.body, "{\"step\":3}\n");
  EXPECT_THAT(page.head, HasSubstr("Content-Type: application/json"));
  const auto without = Serve({[] { return std::string(); }, Fine, Fine});
  EXPECT_EQ(HttpGet(without->address(), "/progress").code, 404);
}

TEST(MonitoringServerTest, SaysWhatIsWrong) {
  bool ready = false;
  const auto server = Serve({[] { return std::string(); }, [] { return absl::UnavailableError("the loop is stuck"); },
                             [&] { return ready ? absl::OkStatus() : absl::UnavailableError("not joined yet"); }});
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 503);
  EXPECT_EQ(HttpGet(server->address(), "/healthz").body, "the loop is stuck\n");
  EXPECT_EQ(HttpGet(server->address(), "/readyz").body, "not joined yet\n");
  ready = true;
  EXPECT_EQ(HttpGet(server->address(), "/readyz").code, 200);
}

TEST(MonitoringServerTest, AnswersNothingElse) {
  const auto server = Serve({[] { return std::string("secret"); }, Fine, Fine});
  for (const char* path : {"/", "/metrics/", "/metrics/x", "/healthz/..", "/../etc/passwd", "/%2e%2e/etc/passwd"}) {
    const HttpResponse response = HttpGet(server->address(), path);
    EXPECT_NE(response.code, 200) << path;
    EXPECT_THAT(response.body, Not(HasSubstr("secret"))) << path;
  }
  EXPECT_EQ(SendHttp(server->address(), "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n").code, 405);
  const HttpResponse head = SendHttp(server->address(), "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.code, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(SendHttp(server->address(), "GET /healthz?verbose HTTP/1.0\r\n\r\n").code, 200);
  for (const std::string nonsense : {"nonsense\r\n\r\n", "GET /metrics\r\n\r\n", "GET  /metrics HTTP/1.1\r\n\r\n", "\r\n\r\n",
                                     "GET metrics HTTP/1.1\r\n\r\n", "GET /metrics HTTP/2\r\n\r\n"}) {
    EXPECT_EQ(SendHttp(server->address(), nonsense).code, 400) << nonsense;
  }
  EXPECT_EQ(SendHttp(server->address(), "GET /metrics HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n").code, 0) << "too long";
  EXPECT_EQ(HttpGet(server->address(), "/metrics").code, 200) << "still there";
}

TEST(MonitoringServerTest, AProbeIsNotBehindASlowScrape) {
  std::promise<void> scraping, go_on;
  const auto server = Serve({[&] {
                               scraping.set_value();
                               go_on.get_future().wait();
                               return std::string("slow");
                             },
                             Fine, Fine});
  std::thread scraper([&] { EXPECT_EQ(HttpGet(server->address(), "/metrics").body, "slow"); });
  scraping.get_future().wait();
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
  go_on.set_value();
  scraper.join();
}

TEST(MonitoringServerTest, AProbeIsNotBehindPeersWhoDoNotFinishTheirRequests) {
  const auto server = Serve({[] { return std::string(); }, Fine, Fine});
  // Were they waited for by a few threads, the answer would come later than HttpGet waits.
  std::vector<int> idle;
  for (int i = 0; i < 60; ++i) idle.push_back(OpenHttp(server->address(), "G"));
  EXPECT_THAT(idle, Not(Contains(-1)));
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
  for (const int fd : idle) close(fd);
}

TEST(MonitoringServerTest, AProbeIsNotBehindManyMoreOfThemThanThereAreThreads) {
  using std::chrono::milliseconds;
  constexpr milliseconds kTimeout(1900);  // a bit less than the server has for a request that does not come
  const auto since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  };
  const auto server = Serve({[] { return std::string(); }, Fine, Fine});
  const auto start = std::chrono::steady_clock::now();
  std::vector<int> idle;
  for (int i = 0; i < 480; ++i) idle.push_back(OpenHttp(server->address(), "GET /healthz HTTP/1.1\r\n"));
  ASSERT_THAT(idle, Not(Contains(-1)));
  pollfd first = {.fd = idle.front(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&first, 1, static_cast<int>(std::max(kTimeout - since(start), milliseconds(0)).count())), 1) << "was not dropped";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
  EXPECT_LT(since(start), milliseconds(7000)) << "14, were each waited for, by 64 threads";
  // Those that came last have their time. A try that took all of it tells nothing.
  std::string answer;
  for (bool in_time = false; !in_time;) {
    const auto begin = std::chrono::steady_clock::now();
    idle.push_back(OpenHttp(server->address(), "GET /healthz HTTP/1.1\r\n"));
    EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
    send(idle.back(), "\r\n", 2, MSG_NOSIGNAL);
    answer.assign(12, ' ');
    answer.resize(static_cast<size_t>(std::max<ssize_t>(recv(idle.back(), answer.data(), answer.size(), MSG_WAITALL), 0)));
    in_time = since(begin) < kTimeout;
  }
  EXPECT_EQ(answer, "HTTP/1.1 200");
  for (const int fd : idle) close(fd);
}

TEST(MonitoringServerTest, ThreadsAreThereOnlyWhileTheyAreOfUse) {
  constexpr size_t kPeers = 30;
  std::promise<void> go_on;
  std::atomic<size_t> asking = 0;
  // Where something does not come, the test has no end but its limit.
  while (Threads() > 0) std::this_thread::yield();
  const auto server = Serve({[&, wait = go_on.get_future().share()] {
                               ++asking;
                               wait.wait();
                               return std::string();
                             },
                             Fine, Fine});
  EXPECT_LE(Threads(), size_t{2});
  std::vector<int> peers;
  for (size_t i = 0; i < kPeers; ++i) peers.push_back(OpenHttp(server->address(), "GET /metrics HTTP/1.1\r\n\r\n"));
  while (asking < kPeers) std::this_thread::yield();
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
  EXPECT_GT(Threads(), kPeers);
  go_on.set_value();
  for (const int fd : peers) close(fd);
  while (Threads() > 2) std::this_thread::yield();
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
}

TEST(MonitoringServerTest, AnAddressInUseIsNamedWithTheReason) {
  const auto server = Serve({[] { return std::string(); }, Fine, Fine});
  const auto second = MonitoringServer::Start(server->address(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server->address()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200) << "the first is not disturbed";
}

TEST(MonitoringServerTest, WhatIsNoAddressIsRefused) {
  for (const std::string address : {"",
                                    "off",
                                    "8080",
                                    ":8080",
                                    "127.0.0.1",
                                    "127.0.0.1:",
                                    "127.0.0.1:x",
                                    "0.0.0.0:x1",
                                    "127.0.0.1:-1",
                                    "localhost:0",
                                    "127.0.0.1:0,127.0.0.1:0",
                                    "127.0.0.1:0s",
                                    "127.0.0.1: 0",
                                    "127.0.0.1:+0",
                                    "[::1]",
                                    "[::1]:",
                                    "::1:0",
                                    "::",
                                    "[::1%lo]:0",
                                    "[]:0",
                                    "+127.0.0.1:0",
                                    "[::1:0",
                                    "[127.0.0.1]:0"}) {
    const auto server = MonitoringServer::Start(address, {});
    ASSERT_FALSE(server.ok()) << address;
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(address));
  }
}

TEST(MonitoringServerTest, AnAnswerThatFillsBuffersComesWhole) {
  const std::string much(size_t{8} << 20, 'x');
  const auto server = Serve({[&] { return much; }, Fine, Fine});
  EXPECT_EQ(HttpGet(server->address(), "/metrics").body, much);
}

TEST(MonitoringServerTest, AnAnswerIsInMemoryOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' malloc() does not say what it has given out";
#endif
  constexpr size_t kBytes = size_t{64} << 20;  // more than sockets hold, and than malloc() takes from an arena
  const auto server = Serve({[] { return std::string(kBytes, 'x'); }, Fine, Fine});
  const size_t before = mallinfo2().hblkhd;
  const int peer = OpenHttp(server->address(), "GET /metrics HTTP/1.1\r\n\r\n");
  char first = 0;
  EXPECT_EQ(recv(peer, &first, 1, 0), 1);
  EXPECT_LT(mallinfo2().hblkhd - before, kBytes + kBytes / 2);
  close(peer);
}

TEST(MonitoringServerTest, ARequestWithABodyIsAnsweredAllTheSame) {
  const auto server = Serve({[] { return std::string(); }, Fine, Fine});
  const std::string body(100'000, 'x');
  EXPECT_EQ(SendHttp(server->address(), absl::StrCat("POST /metrics HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body)).code,
            405);
}

TEST(MonitoringServerTest, PeersWhoDoNotFinishTheirRequestsAreNotWaitedForAtTheEnd) {
  auto server = Serve({[] { return std::string(); }, Fine, Fine});
  std::vector<int> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(OpenHttp(server->address(), "G"));
  EXPECT_EQ(HttpGet(server->address(), "/healthz").code, 200);
  const auto start = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1500)) << "a request has two seconds otherwise";
  for (const int fd : idle) close(fd);
}

TEST(MonitoringServerTest, AddressesAreFreeAgainAfterTheEnd) {
  auto server = Serve({[] { return std::string(); }, Fine, Fine});
  const std::string address = server->address();
  EXPECT_EQ(HttpGet(address, "/healthz").code, 200);
  server.reset();
  EXPECT_EQ(HttpGet(address, "/healthz").code, 0);
  EXPECT_TRUE(MonitoringServer::Start(address, {[] { return std::string(); }, Fine, Fine}).ok());
}

}  // namespace
}  // namespace fusionllm::daemon
