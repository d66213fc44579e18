// fusionctl as users call it, for tests: a temporary folder of files, and what the program says when it runs there.
//
// The program is that of FUSIONLLM_BIN_DIR. Not thread-safe.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {

struct Outcome {
  int code = -1;  // 128 + the signal that ended it
  std::string out, err;
};

class Fusionctl {
 public:
  void Write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name, std::ios::binary) << text; }
  std::string Path(const std::string& name) const { return folder_ / name; }

  // `arguments` as in a shell; `before` are commands of the same shell, "ulimit -v 1000000;".
  Outcome Run(const std::string& arguments, const std::string& before = "") const {
    const char* bin = std::getenv("FUSIONLLM_BIN_DIR");
    const std::string command =
        absl::StrCat("cd '", folder_.path(), "' && ", before, " '", bin == nullptr ? "." : bin, "/fusionctl' ", arguments, " 2>stderr.txt");
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return outcome;
    char buffer[4096];
    for (size_t n = fread(buffer, 1, sizeof buffer, pipe); n > 0; n = fread(buffer, 1, sizeof buffer, pipe)) outcome.out.append(buffer, n);
    const int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.err = base::ReadWholeFile(folder_ / "stderr.txt");
    return outcome;
  }

 private:
  const base::TempFolder folder_;
};

}  // namespace fusionllm::cli
