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

TEST(ExitCodeTest, ANamedFileThatCannotBeUsedIsBadInputWhateverIsWrongWithItAndAFullDiskIsNot) {
  for (const absl::Status& wrong : {absl::DataLossError("words"), absl::PermissionDeniedError("words"), absl::UnavailableError("words"),
                                    absl::InternalError("words"), absl::NotFoundError("words")}) {
    EXPECT_EQ(ExitCodeFor(OfNamedFile(wrong)), 2) << wrong;
    EXPECT_EQ(OfNamedFile(wrong).message(), "words");
  }
  EXPECT_EQ(ExitCodeFor(OfNamedFile(absl::ResourceExhaustedError("No space left"))), 1);
  EXPECT_TRUE(OfNamedFile(absl::OkStatus()).ok());
}

TEST(ExitCodeTest, OnlyAFileSystemThatDoesNotAnswerIsWorthAnotherTry) {
  EXPECT_TRUE(absl::IsUnavailable(OfNamedFileIfLasting(absl::UnavailableError("words"))));
  EXPECT_EQ(ExitCodeFor(OfNamedFileIfLasting(absl::InternalError("words"))), 2);
  EXPECT_EQ(ExitCodeFor(OfNamedFileIfLasting(absl::ResourceExhaustedError("words"))), 1);
  EXPECT_TRUE(OfNamedFileIfLasting(absl::OkStatus()).ok());
}

TEST(ExitCodeTest, WhatIsLostUnderARunIsAFailureAndKeepsItsWords) {
  for (const absl::Status& lost : {absl::NotFoundError("words"), absl::InvalidArgumentError("words"), absl::UnavailableError("words")}) {
    EXPECT_EQ(ExitCodeFor(LostUnderRun(lost)), 1) << lost;
    EXPECT_EQ(LostUnderRun(lost).message(), "words");
  }
  EXPECT_TRUE(absl::IsUnavailable(LostUnderRun(absl::UnavailableError("x")))) << "a peer may come back";
  EXPECT_TRUE(LostUnderRun(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace fusionllm::base
