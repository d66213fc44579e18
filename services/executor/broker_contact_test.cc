#include "services/executor/broker_contact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/exit_code.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::services {
namespace {

using base::kExitDone;
using base::kExitFailed;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class BrokerContactTest : public ::testing::Test {
 protected:
  // As a process that starts now finds it.
  BrokerContact Start() {
    return BrokerContact(
        {.file = folder_.path() + "/contact", .lost_after = absl::Hours(1), .termination_log = folder_.path() + "/message"},
        [this] { return now_; });
  }
  std::string Message() { return base::ReadSmallFile(folder_.path() + "/message", 1000).value_or("none"); }

  base::TempFolder folder_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

TEST_F(BrokerContactTest, AFailureStaysOneWhileContactIsNotLostForLong) {
  BrokerContact contact = Start();
  now_ += absl::Hours(1) - absl::Seconds(1);
  EXPECT_EQ(contact.ExitCode(kExitFailed), kExitFailed);
  EXPECT_EQ(Message(), "none");
}

TEST_F(BrokerContactTest, TimeWithoutContactCountsOverProcesses) {
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(Start().ExitCode(kExitFailed), kExitFailed) << i;
    now_ += absl::Minutes(10);
  }
  EXPECT_EQ(Start().ExitCode(kExitFailed), kExitDone);
  EXPECT_THAT(Message(), StartsWith("BrokerLost: "));
  EXPECT_THAT(Message(), HasSubstr("for 3600 s"));
}

TEST_F(BrokerContactTest, ContactRestartsTheCount) {
  {
    BrokerContact contact = Start();
    now_ += absl::Minutes(50);
    contact.RecordContact();
  }
  now_ += absl::Minutes(50);
  EXPECT_EQ(Start().ExitCode(kExitFailed), kExitFailed);
  now_ += absl::Minutes(10);
  EXPECT_EQ(Start().ExitCode(kExitFailed), kExitDone);
}

TEST_F(BrokerContactTest, AFailureLeavesItsReasonOnOneLine) {
  EXPECT_EQ(Start().ExitCode(kExitFailed, "the disk is full:\n/data"), kExitFailed);
  EXPECT_EQ(Message(), "the disk is full:\\n/data");
  now_ += absl::Hours(2);
  EXPECT_EQ(Start().ExitCode(kExitFailed, "cannot be reached"), kExitDone);
  EXPECT_THAT(Message(), StartsWith("BrokerLost: ")) << "the operator looks for that";
}

TEST_F(BrokerContactTest, AnEndInOrderIsNotSaidToBeOne) {
  BrokerContact contact = Start();
  now_ += absl::Hours(2);
  EXPECT_EQ(contact.ExitCode(kExitDone), kExitDone);
  EXPECT_EQ(Message(), "none");
}

TEST_F(BrokerContactTest, WhatMakesNoSenseInTheFileCountsAsContactNow) {
  for (const char* text : {"", "yesterday", "99999999999"}) {
    ASSERT_TRUE(base::WriteFile(folder_.path() + "/contact", text).ok());
    EXPECT_EQ(Start().ExitCode(kExitFailed), kExitFailed) << text;
    now_ += absl::Hours(1);
    EXPECT_EQ(Start().ExitCode(kExitFailed), kExitDone) << text << ": the count has begun";
  }
}

TEST_F(BrokerContactTest, WithoutALimitNothingIsChanged) {
  BrokerContact contact({}, [this] { return now_; });
  now_ += absl::Hours(1000);
  EXPECT_EQ(contact.ExitCode(kExitFailed), kExitFailed);
}

}  // namespace
}  // namespace fusionllm::services
