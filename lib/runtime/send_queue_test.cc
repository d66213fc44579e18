#include "lib/runtime/send_queue.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::runtime {
namespace {

using ::testing::ElementsAre;

class RecordingPort : public MessagePort {
 public:
  absl::Status Send(int to_stage, const MessageKey& key, Payload payload) override {
    if (key.micro_batch == refused) return absl::UnavailableError("the peer is lost");
    sent.push_back(key.micro_batch);
    return absl::OkStatus();
  }
  int refused = -1;
  std::vector<int> sent;  // micro-batches
};

// Whole when the test says so.
class Later : public compression::PendingMessage {
 public:
  explicit Later(std::shared_future<absl::Status> whole) : whole_(std::move(whole)) {}
  size_t size() const override { return 3; }
  absl::Status Finish(std::vector<std::byte>* out) override {
    out->resize(3);
    return whole_.get();
  }

 private:
  std::shared_future<absl::Status> whole_;
};

SendQueue::Message MessageOf(int micro_batch, std::unique_ptr<compression::PendingMessage> pending) {
  return {.to_stage = 1, .key = {.micro_batch = micro_batch}, .pending = std::move(pending), .explain = [](const absl::Status& status) {
            return absl::InternalError(absl::StrCat("explained: ", status.message()));
          }};
}

TEST(SendQueueTest, HandsMessagesOverInOrderOnceTheyAreWhole) {
  RecordingPort port;
  SendQueue queue(port, 2, [](const absl::Status&) { FAIL(); });
  std::promise<absl::Status> whole;
  queue.Push(MessageOf(0, std::make_unique<Later>(whole.get_future().share())));  // returns although the message is not whole
  queue.Push(MessageOf(1, compression::CompletedMessage(Payload(5))));
  whole.set_value(absl::OkStatus());
  EXPECT_TRUE(queue.Drain().ok());
  EXPECT_THAT(port.sent, ElementsAre(0, 1));
  EXPECT_THAT(queue.sent_bytes(), ElementsAre(0, 8));
}

TEST(SendQueueTest, TheFirstErrorOfAMessageIsExplainedAndTheRestIsDropped) {
  RecordingPort port;
  std::promise<absl::Status> failure;
  SendQueue queue(port, 2, [&](const absl::Status& status) { failure.set_value(status); });
  std::promise<absl::Status> whole;
  queue.Push(MessageOf(0, std::make_unique<Later>(whole.get_future().share())));
  for (int i = 1; i < 5; ++i) queue.Push(MessageOf(i, compression::CompletedMessage(Payload(5))));
  whole.set_value(absl::InvalidArgumentError("element 3 is nan"));
  EXPECT_EQ(failure.get_future().get().message(), "explained: element 3 is nan");
  EXPECT_EQ(queue.Drain().message(), "explained: element 3 is nan");
  // Messages are not taken any more, and nothing waits for that.
  for (size_t i = 0; i < 2 * SendQueue::kMessagesUnderWay; ++i) queue.Push(MessageOf(9, compression::CompletedMessage(Payload(5))));
  EXPECT_THAT(port.sent, ElementsAre());
}

TEST(SendQueueTest, ReturnsPortErrorUnchanged) {
  RecordingPort port;
  port.refused = 1;
  std::promise<absl::Status> failure;
  SendQueue queue(port, 2, [&](const absl::Status& status) { failure.set_value(status); });
  for (int i = 0; i < 3; ++i) queue.Push(MessageOf(i, compression::CompletedMessage(Payload(5))));
  EXPECT_EQ(failure.get_future().get().message(), "the peer is lost");
  EXPECT_TRUE(absl::IsUnavailable(queue.Drain()));
  EXPECT_THAT(port.sent, ElementsAre(0));
}

TEST(SendQueueTest, PushWaitsForRoom) {
  RecordingPort port;
  SendQueue queue(port, 2, [](const absl::Status&) { FAIL(); });
  std::promise<absl::Status> whole;
  queue.Push(MessageOf(0, std::make_unique<Later>(whole.get_future().share())));
  constexpr int kMany = 3 * static_cast<int>(SendQueue::kMessagesUnderWay);
  std::atomic<int> pushed{0};
  std::thread pusher([&] {
    for (int i = 1; i < kMany; ++i, ++pushed) queue.Push(MessageOf(i, compression::CompletedMessage(Payload(5))));
  });
  while (pushed < static_cast<int>(SendQueue::kMessagesUnderWay)) std::this_thread::yield();
  EXPECT_LE(pushed, static_cast<int>(SendQueue::kMessagesUnderWay) + 1);  // and one that the queue may hold in its hand
  whole.set_value(absl::OkStatus());
  pusher.join();
  EXPECT_TRUE(queue.Drain().ok());
  EXPECT_EQ(port.sent.size(), static_cast<size_t>(kMany));
}

}  // namespace
}  // namespace fusionllm::runtime
