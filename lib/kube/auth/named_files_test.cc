#include "lib/kube/auth/named_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::kube {
namespace {

ClientConfig Entries() {
  ClientConfig config;
  config.cluster_entry = "m.yaml: cluster \"c\"";
  config.user_entry = "m.yaml: user \"u\"";
  return config;
}

std::string Said(const ClientConfig& config) {
  const absl::Status status = CheckNamedFiles(config);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(NamedFilesTest, AFileThatCannotBeReadIsBadInputWithItsEntryAndField) {
  const base::TempFolder folder;
  const std::string gone = folder / "gone";
  const std::string cannot = absl::StrCat(gone, ": cannot be read: No such file or directory");
  ClientConfig config = Entries();
  config.token_file = gone;
  EXPECT_EQ(Said(config), absl::StrCat("m.yaml: user \"u\": tokenFile: ", cannot));
  config.token_file = folder.Write("token", " \n");
  EXPECT_EQ(Said(config), absl::StrCat("m.yaml: user \"u\": tokenFile: ", config.token_file, " is empty"));
  config.token_file = folder.Write("token", "a\nb\n");
  EXPECT_THAT(Said(config), ::testing::HasSubstr("holds a control character"));
  config.token_file = folder.Write("token", "a\n");
  EXPECT_TRUE(CheckNamedFiles(config).ok());
  config.certificate.path = gone;
  EXPECT_EQ(Said(config), absl::StrCat("m.yaml: user \"u\": client-certificate: ", cannot));
  config.ca.path = gone;
  EXPECT_EQ(Said(config), absl::StrCat("m.yaml: cluster \"c\": certificate-authority: ", cannot));
}

TEST(NamedFilesTest, AProgramThatIsNotThereOrMayNotBeRunIsBadInputWithItsHint) {
  const base::TempFolder folder;
  ClientConfig config = Entries();
  config.exec = ExecConfig{.command = "no-such-login-program", .install_hint = "install it"};
  EXPECT_EQ(Said(config),
            "m.yaml: user \"u\": exec.command: cannot run no-such-login-program: there is no such program in $PATH. install it");
  config.exec->command = folder.path();
  EXPECT_THAT(Said(config), ::testing::HasSubstr("Permission denied"));
  config.exec->command = folder / "gone";
  EXPECT_THAT(Said(config), ::testing::HasSubstr("No such file or directory"));
  config.exec->command = "sh";
  EXPECT_TRUE(CheckNamedFiles(config).ok());
  config.exec->command = "/bin/sh";
  EXPECT_TRUE(CheckNamedFiles(config).ok());
}

}  // namespace
}  // namespace fusionllm::kube
