#include "lib/runtime/message.h"

#include <thread>

#include "gtest/gtest.h"

namespace fusionllm::runtime {
namespace {

constexpr MessageKey kKey = {.step = 3, .micro_batch = 1, .id = 7};

TEST(InboxTest, GivesEachMessageOnceWhateverTheOrder) {
  Inbox inbox;
  MessageKey later = kKey;
  later.step = 4;
  inbox.Deliver(later, Payload(2));
  inbox.Deliver(kKey, Payload(1));
  const MessageKey both[] = {kKey, later};
  EXPECT_TRUE(inbox.HasAll(both));
  EXPECT_EQ(inbox.Take(kKey)->size(), 1u);
  EXPECT_FALSE(inbox.HasAll(both));
  EXPECT_EQ(inbox.Take(later)->size(), 2u);
}

TEST(InboxTest, KeepsTheFirstOfTwoMessagesWithOneKey) {
  Inbox inbox;
  inbox.Deliver(kKey, Payload(1));
  inbox.Deliver(kKey, Payload(2));
  EXPECT_EQ(inbox.Take(kKey)->size(), 1u);
}

TEST(InboxTest, CancelEndsAWaitAndEveryLaterOne) {
  Inbox inbox;
  EXPECT_TRUE(inbox.status().ok());
  std::thread waiter([&] { EXPECT_EQ(inbox.Take(kKey).status().message(), "over"); });
  inbox.Cancel(absl::CancelledError("over"));
  waiter.join();
  inbox.Cancel(absl::CancelledError("too late"));
  inbox.Deliver(kKey, Payload(1));
  EXPECT_EQ(inbox.Take(kKey).status().message(), "over");
  EXPECT_EQ(inbox.WaitForDelivery(inbox.deliveries()).message(), "over");
  EXPECT_EQ(inbox.status().message(), "over");
}

TEST(InboxTest, NewsThatCameBeforeTheWaitAreNotMissed) {
  Inbox inbox;
  const uint64_t seen = inbox.deliveries();
  inbox.Deliver(kKey, Payload(1));
  EXPECT_TRUE(inbox.WaitForDelivery(seen).ok());
}

TEST(InboxTest, ATakeWithADeadlineGivesUpAndAMessageThatIsThereIsGiven) {
  Inbox inbox;
  EXPECT_EQ(inbox.Take(kKey, absl::InfinitePast()).status().code(), absl::StatusCode::kDeadlineExceeded);
  inbox.Deliver(kKey, Payload(1));
  EXPECT_EQ(inbox.Take(kKey, absl::InfinitePast())->size(), 1u);
  inbox.Cancel(absl::CancelledError("over"));
  EXPECT_EQ(inbox.Take(kKey, absl::InfinitePast()).status().message(), "over");
}

TEST(InboxTest, ReplicaChunksAreNotCountedAsDeliveries) {
  Inbox inbox;
  const uint64_t seen = inbox.deliveries();
  const MessageKey chunk = {.kind = MessageKind::kReplica, .id = 1};
  inbox.Deliver(chunk, Payload(3));
  EXPECT_EQ(inbox.deliveries(), seen);
  EXPECT_EQ(inbox.Take(chunk)->size(), 3u);
}

TEST(InboxTest, CancelCallbackIsCalledOnce) {
  Inbox inbox;
  int times = 0;
  absl::Status why;
  inbox.WhenCancelled([&](const absl::Status& status) {
    ++times;
    why = status;
  });
  EXPECT_EQ(times, 0);
  inbox.Cancel(absl::CancelledError("over"));
  inbox.Cancel(absl::CancelledError("too late"));
  EXPECT_EQ(times, 1);
  EXPECT_EQ(why.message(), "over");
  inbox.WhenCancelled([&](const absl::Status& status) { why = absl::CancelledError(status.message() == "over" ? "told at once" : ""); });
  EXPECT_EQ(why.message(), "told at once");
}

}  // namespace
}  // namespace fusionllm::runtime
