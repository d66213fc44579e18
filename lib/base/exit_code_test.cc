#include "lib/base/exit_code.h"

#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

TEST(ExitCodeTest, WhatTheUserCanMendIsBadInputAndTheRestAFailure) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), 0);
  for (const absl::Status& input :
       {absl::InvalidArgumentError("x"), absl::NotFoundError("x"), absl::FailedPreconditionError("x"), absl::PermissionDeniedError("x")}) {
    EXPECT_EQ(ExitCodeFor(input), 2) << input;
  }
  for (const absl::Status& failure :
       {absl::InternalError("x"), absl::UnavailableError("x"), absl::ResourceExhaustedError("x"), absl::DataLossError("x")}) {
    EXPECT_EQ(ExitCodeFor(failure), 1) << failure;
  }
}

TEST(ExitCodeTest, UnusableNamedFileIsBadInputButFullDiskIsNot) {
  for (const absl::Status& wrong : {absl::DataLossError("words"), absl::PermissionDeniedError("words"), absl::UnavailableError("words"),
                                    absl::InternalError("words"), absl::NotFoundError("words")}) {
    EXPECT_EQ(ExitCodeFor(AsBadInput(wrong)), 2) << wrong;
    EXPECT_EQ(AsBadInput(wrong).message(), "words");
  }
  EXPECT_EQ(ExitCodeFor(AsBadInput(absl::ResourceExhaustedError("No space left"))), 1);
  EXPECT_TRUE(AsBadInput(absl::OkStatus()).ok());
}

TEST(ExitCodeTest, OnlyAFileSystemThatDoesNotAnswerIsWorthAnotherTry) {
  EXPECT_TRUE(absl::IsUnavailable(AsBadInputIfPermanent(absl::UnavailableError("words"))));
  EXPECT_EQ(ExitCodeFor(AsBadInputIfPermanent(absl::InternalError("words"))), 2);
  EXPECT_EQ(ExitCodeFor(AsBadInputIfPermanent(absl::ResourceExhaustedError("words"))), 1);
  EXPECT_TRUE(AsBadInputIfPermanent(absl::OkStatus()).ok());
}

TEST(ExitCodeTest, WhatIsLostUnderARunIsAFailureAndKeepsItsWords) {
  for (const absl::Status& lost : {absl::NotFoundError("words"), absl::InvalidArgumentError("words"), absl::UnavailableError("words")}) {
    EXPECT_EQ(ExitCodeFor(AsDataLossInRun(lost)), 1) << lost;
    EXPECT_EQ(AsDataLossInRun(lost).message(), "words");
  }
  EXPECT_TRUE(absl::IsUnavailable(AsDataLossInRun(absl::UnavailableError("x")))) << "a peer may come back";
  EXPECT_TRUE(AsDataLossInRun(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace fusionllm::base
