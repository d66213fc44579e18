#include "lib/base/file_error.h"

#include <cerrno>

#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

TEST(FileErrorTest, NamesThePathAndWhatTheSystemSays) {
  EXPECT_EQ(FileError(EACCES, "read", "corpus.txt").message(), "cannot read corpus.txt: Permission denied");
}

TEST(FileErrorTest, OnlyANetworkFileSystemThatDoesNotAnswerIsWorthAnotherTry) {
  for (const int error :
       {EACCES, EPERM, EROFS, EMFILE, ENFILE, ENOSPC, EDQUOT, EFBIG, EIO, ENOENT, EISDIR, ENOTDIR, ELOOP, EBUSY, EINVAL, EBADF}) {
    const absl::Status status = FileError(error, "read", "f");
    EXPECT_FALSE(status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsAborted(status) ||
                 absl::IsDeadlineExceeded(status))
        << error << ": " << status;
  }
  for (const int error : {ESTALE, ETIMEDOUT, ENOTCONN}) EXPECT_TRUE(absl::IsUnavailable(FileError(error, "read", "f"))) << error;
}

TEST(FileErrorTest, WhatHasReachedALimitIsNoFaultOfTheUsers) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE})
    EXPECT_TRUE(absl::IsResourceExhausted(FileError(error, "write", "f"))) << error;
}

}  // namespace
}  // namespace fusionllm::base
