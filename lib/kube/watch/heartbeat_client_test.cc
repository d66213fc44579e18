#include "lib/kube/watch/heartbeat_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lib/kube/api/api_error.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/unimplemented_client.h"
#include "lib/kube/watch/testing/objects.h"

namespace fusionllm::kube {
namespace {

// Its watches never end by themselves; its version answers as set.
class QuietServer : public testing::UnimplementedClient {
 public:
  absl::Status Watch(const Resource&, absl::string_view, const WatchOptions&, WatchSink&, std::stop_token stop) override {
    std::mutex mutex;
    std::condition_variable changed;
    const std::stop_callback wake(stop, [&] {
      const std::lock_guard lock(mutex);
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    ++watches;
    changed.wait(lock, [&] { return stop.stop_requested(); });
    return absl::CancelledError("stopped");
  }
  absl::StatusOr<std::string> GetPath(absl::string_view path, const CallOptions& call) override {
    EXPECT_EQ(path, "/version");
    EXPECT_EQ(call.timeout, absl::Seconds(10));
    const std::lock_guard lock(mutex_);
    ++questions;  // with the lock: what is set to fail after one was counted is about the next
    if (!failure_.ok()) return failure_;
    return std::string("{}");
  }
  void Fail(absl::Status status) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(status);
  }
  std::atomic<int> watches = 0, questions = 0;

 private:
  std::mutex mutex_;
  absl::Status failure_;
};

class NoSink : public WatchSink {
 public:
  absl::Status OnData(absl::string_view) override { return absl::OkStatus(); }
};

class HeartbeatClientTest : public ::testing::Test {
 protected:
  void OpenWatch() {
    watcher_ = std::thread([this] {
      NoSink sink;
      ended_with_ = client_.Watch(testing::Pods(), "", {}, sink, stop_.get_token());
      ended_ = true;
    });
    while (server_.watches == 0) Moment();
  }
  // Lets time pass until so many questions were asked in all.
  void PassQuestions(int questions) {
    while (server_.questions < questions) {
      clock_.Advance(absl::Seconds(1));
      Moment();
    }
  }
  static void Moment() {
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, std::chrono::milliseconds(1));
  }

  testing::FakeClock clock_;
  QuietServer server_;
  HeartbeatClient client_{server_, clock_};
  std::stop_source stop_;
  std::thread watcher_;
  absl::Status ended_with_;
  std::atomic<bool> ended_ = false;
};

TEST_F(HeartbeatClientTest, AQuietWatchOfALivingServerStays) {
  OpenWatch();
  server_.Fail(absl::UnavailableError("for a moment"));
  PassQuestions(1);
  server_.Fail(absl::OkStatus());
  PassQuestions(5);
  server_.Fail(ToStatus({.code = 403, .reason = "Forbidden", .message = "not for you"}));  // an answer nevertheless
  PassQuestions(10);
  EXPECT_FALSE(ended_);
  EXPECT_TRUE(client_.Alive());
  stop_.request_stop();
  watcher_.join();
  EXPECT_EQ(ended_with_.code(), absl::StatusCode::kCancelled);
}

TEST_F(HeartbeatClientTest, ThatThereAreNoCredentialsIsNoSilenceOfTheServer) {
  OpenWatch();
  server_.Fail(absl::UnauthenticatedError("no credentials: login: ended with 3"));
  PassQuestions(10);
  EXPECT_FALSE(ended_);
  EXPECT_TRUE(client_.Alive());
  server_.Fail(absl::DeadlineExceededError("no answer"));
  PassQuestions(11);
  server_.Fail(absl::UnauthenticatedError("no credentials: login: ended with 3"));
  PassQuestions(20);
  EXPECT_FALSE(ended_) << "one silence stays one";
  stop_.request_stop();
  watcher_.join();
  EXPECT_EQ(ended_with_.code(), absl::StatusCode::kCancelled);
}

TEST_F(HeartbeatClientTest, AWatchOfASilentServerIsGivenUp) {
  OpenWatch();
  PassQuestions(2);
  server_.Fail(absl::DeadlineExceededError("no answer"));
  while (!ended_) {
    clock_.Advance(absl::Seconds(1));
    Moment();
  }
  watcher_.join();
  EXPECT_EQ(ended_with_.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(client_.Alive());
  server_.watches = 0;
  server_.Fail(absl::OkStatus());
  ended_ = false;
  OpenWatch();
  while (!client_.Alive()) {
    clock_.Advance(absl::Seconds(1));
    Moment();
  }
  stop_.request_stop();
  watcher_.join();
}

TEST_F(HeartbeatClientTest, NoHeartbeatWithoutWatches) {
  clock_.Advance(absl::Minutes(10));
  Moment();
  EXPECT_EQ(server_.questions, 0);
}

}  // namespace
}  // namespace fusionllm::kube
