// The main of test programs (fusionllm_test of cmake/Targets.cmake), which have the tests of many files in them. Besides GoogleTest's
// flags:
//   --test_file=PATH      only tests of this *_test.cc, a path below FUSIONLLM_SOURCE_DIR; may be given more than once
//   --check_test_files    runs nothing: fails if a test is in none of the files, or in more than one
// A test is of the file that it stands in, or, where its suite has parameters, of the one that instantiates the suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

bool Take(std::string& argument, const std::string& flag) {
  if (argument.compare(0, flag.size(), flag) != 0) return false;
  argument.erase(0, flag.size());
  return true;
}

std::string NextName(const std::string& text, size_t& at) {
  while (at < text.size() && (std::isspace(static_cast<unsigned char>(text[at])) != 0 || text[at] == ',')) ++at;
  const size_t start = at;
  while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_')) ++at;
  return text.substr(start, at - start);
}

// Names of suites that `text` instantiates: "Prefix/Suite".
std::set<std::string> Instantiated(const std::string& text) {
  static const std::string kMacro = "INSTANTIATE_TEST_SUITE_P(";
  std::set<std::string> suites;
  for (size_t at = text.find(kMacro); at != std::string::npos; at = text.find(kMacro, at)) {
    at += kMacro.size();
    const std::string prefix = NextName(text, at);
    suites.insert(prefix + "/" + NextName(text, at));
  }
  return suites;
}

// The full names of the tests of a file; empty if the file cannot be read.
std::set<std::string> TestsOf(const std::string& file) {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  std::ifstream in(root == nullptr ? file : std::string(root) + "/" + file);
  const std::set<std::string> instantiated = Instantiated(std::string(std::istreambuf_iterator<char>(in), {}));
  std::set<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    const std::string suite_name = suite.name();
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      const std::string where = test.file();
      const bool here = suite_name.find('/') != std::string::npos
                            ? instantiated.count(suite_name) > 0
                            : where == file || (where.size() > file.size() &&
                                                where.compare(where.size() - file.size() - 1, std::string::npos, "/" + file) == 0);
      if (here) names.insert(suite_name + "." + test.name());
    }
  }
  return names;
}

int CheckFiles(const std::vector<std::string>& files) {
  std::map<std::string, int> found;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    for (int k = 0; k < all.GetTestSuite(i)->total_test_count(); ++k) {
      found.emplace(std::string(all.GetTestSuite(i)->name()) + "." + all.GetTestSuite(i)->GetTestInfo(k)->name(), 0);
    }
  }
  int wrong = 0;
  for (const std::string& file : files) {
    const std::set<std::string> tests = TestsOf(file);
    if (tests.empty()) std::fprintf(stderr, "%s: no test of it is in this program\n", file.c_str()), ++wrong;
    for (const std::string& test : tests) ++found[test];
  }
  for (const auto& [test, times] : found) {
    if (times != 1) std::fprintf(stderr, "%s: in %d of the files of this program, not in one\n", test.c_str(), times), ++wrong;
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  std::vector<std::string> files;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (Take(argument, "--test_file=")) {
      files.push_back(argument);
    } else if (argument == "--check_test_files") {
      check = true;
    } else {
      std::fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[i]);
      return 2;
    }
  }
  if (check) return CheckFiles(files);
  std::string filter;
  for (const std::string& file : files) {
    const std::set<std::string> tests = TestsOf(file);
    if (tests.empty()) {
      std::fprintf(stderr, "%s: no test of %s is in this program\n", argv[0], file.c_str());
      return 2;
    }
    for (const std::string& test : tests) filter += test + ":";
  }
  if (!files.empty()) GTEST_FLAG_SET(filter, filter);
  return RUN_ALL_TESTS();
}
