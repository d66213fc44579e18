// What docker/collect.sh puts into the root of an image, how large docker/images.sh lets the operator's be, and how programs of images are
// configured where libcurl can be linked into them and where not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* source_dir = std::getenv("FUSIONLLM_SOURCE_DIR");
    ASSERT_NE(source_dir, nullptr) << "set FUSIONLLM_SOURCE_DIR to the root of the repository (ctest does)";
    source_dir_ = source_dir;
    root_ = fs::canonical(::testing::TempDir()) / absl::StrCat("images_", getpid());
    fs::create_directories(root_);
  }

  void TearDown() override { fs::remove_all(root_); }

  void Copy(const std::string& path) const {
    fs::create_directories((root_ / path).parent_path());
    fs::copy_file(source_dir_ / path, root_ / path);
  }

  void WriteScript(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "#!/bin/bash\n" << text;
    fs::permissions(root_ / path, fs::perms::owner_all);
  }

  // Exit status, and stdout and stderr together.
  std::pair<int, std::string> Run(const std::string& command) const {
    FILE* pipe = popen(absl::StrCat("cd '", root_.string(), "' && { ", command, "; } 2>&1").c_str(), "r");
    if (pipe == nullptr) return {-1, "popen failed"};
    std::string output;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output.push_back(static_cast<char>(c));
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
  }

  fs::path source_dir_;
  fs::path root_;
};

class ImageRoots : public Images {
 protected:
  void SetUp() override {
    Images::SetUp();
    if (Run("command -v dpkg strip nm").first != 0) GTEST_SKIP() << "this machine has no dpkg or no binutils";
    const char* bin_dir = std::getenv("FUSIONLLM_BIN_DIR");
    ASSERT_NE(bin_dir, nullptr) << "set FUSIONLLM_BIN_DIR to the folder of the programs (ctest does)";
    program_ = fs::path(bin_dir) / "fusion-broker";
    collect_ = absl::StrCat("'", (source_dir_ / "docker/collect.sh").string(), "'");
  }

  bool HasLicence(const std::string& package) const { return fs::exists(root_ / "root/usr/share/doc" / package / "copyright.gz"); }

  fs::path program_;
  std::string collect_;
};

TEST_F(ImageRoots, HoldLicencesOfAllThatIsInTheProgramAndCertificates) {
  const auto [status, output] = Run(absl::StrCat(collect_, " '", program_.string(), "' root"));
  ASSERT_EQ(status, 0) << output;
  const bool shared = fs::exists(root_ / "root/usr/lib/x86_64-linux-gnu/libcurl.so.4");
  EXPECT_EQ(HasLicence("libcurl4"), shared);
  EXPECT_EQ(HasLicence("libcurl4-openssl-dev"), !shared);
  EXPECT_EQ(HasLicence("libnghttp2-14"), shared);
  EXPECT_EQ(HasLicence("libnghttp2-dev"), !shared);
  EXPECT_TRUE(HasLicence("libssl3"));
  EXPECT_TRUE(HasLicence("nlohmann-json3-dev"));
  EXPECT_TRUE(HasLicence("libcli11-dev"));
  EXPECT_FALSE(HasLicence("libbenchmark-dev"));
  EXPECT_TRUE(fs::exists(root_ / "root/etc/ssl/certs/ca-certificates.crt")) << "by which https endpoints of object stores are believed";
}

TEST_F(ImageRoots, AreNotMadeOfAProgramThatCannotTellWhatItHolds) {
  const auto [status, output] = Run(absl::StrCat("strip -o stripped '", program_.string(), "' && ", collect_, " stripped root"));
  EXPECT_EQ(status, 1) << output;
  EXPECT_THAT(output, HasSubstr("stripped has no symbols"));
}

class OperatorImage : public Images {
 protected:
  void SetUp() override {
    Images::SetUp();
    for (const char* path : {"docker/images.sh", "CMakeLists.txt"}) Copy(path);
    WriteScript("docker/collect.sh", "mkdir -p \"$2\"\n");
    WriteScript("build/bin/fusion-operator", "");
    // The first builder that is looked for. An archive as large, and with such files, as a test says.
    WriteScript("bin/podman", "[ \"$1\" != save ] || { printf '%s' \"$FILES\" >\"$4\" && truncate --size \"$BYTES\" \"$4\"; }\n");
  }

  std::pair<int, std::string> Make(int bytes, const std::string& files) const {
    return Run(absl::StrCat("PATH=$PWD/bin:$PATH BYTES=", bytes, " FILES=", files, " PROGRAMS=prebuilt docker/images.sh operator"));
  }
};

constexpr char kSharedCurl[] = "usr/lib/x86_64-linux-gnu/libcurl.so.4";

TEST_F(OperatorImage, HasATenthOfRoomBelowThirtyMegabytes) {
  const auto [status, output] = Make(27'000'000, "libcurl.so.4");
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, Not(HasSubstr("shared libcurl")));
  const auto [larger_status, larger_output] = Make(27'000'001, "libcurl.so.4");
  EXPECT_EQ(larger_status, 1) << larger_output;
  EXPECT_THAT(larger_output, HasSubstr("has 27000001 bytes, and is to have 27000000 at most"));
}

TEST_F(OperatorImage, WithTheSharedLibcurlSaysSoAndHasNoRoom) {
  const auto [status, output] = Make(30'000'000, kSharedCurl);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("holds the shared libcurl and all that loads, 11 MB: make image-programs links it into the programs"));
  EXPECT_EQ(Make(30'000'001, kSharedCurl).first, 1);
}

class ImagePrograms : public Images {
 protected:
  void SetUp() override {
    Images::SetUp();
    Copy("tools/configure-images.sh");
    WriteScript("tools/install-deps.sh", "echo \"deps $*\"; exit ${DEPS:-0}\n");
    WriteScript("tools/install-static.sh", "echo \"make $*\" >&2; echo /a/folder; exit ${STATIC:-0}\n");
    WriteScript("tools/configure.sh", "echo \"configure $*\"\n");
  }
};

TEST_F(ImagePrograms, HaveLibcurlInThem) {
  const auto [status, output] = Run("tools/configure-images.sh release");
  EXPECT_EQ(status, 0);
  EXPECT_EQ(output, "deps static\nmake curl\nconfigure release -DFUSIONLLM_STATIC_CURL=ON -DFUSIONLLM_STATIC_ROOT=/a/folder\n");
  EXPECT_THAT(Run("SKIP_DEPS=1 tools/configure-images.sh release").second, Not(HasSubstr("deps")));
}

TEST_F(ImagePrograms, LoadTheSharedOneWhereNoneCanBeMadeAndThatIsSaid) {
  for (const char* fault : {"STATIC=1", "DEPS=1"}) {
    const auto [status, output] = Run(absl::StrCat(fault, " tools/configure-images.sh cuda"));
    EXPECT_EQ(status, 0) << fault;
    EXPECT_THAT(output, HasSubstr("no static libcurl can be made here: programs load the shared one")) << fault;
    EXPECT_THAT(output, HasSubstr("configure cuda -DFUSIONLLM_STATIC_CURL=OFF\n")) << fault;
  }
}

}  // namespace
}  // namespace fusionllm
