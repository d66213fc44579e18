// events.jsonl and trace.jsonl of a run's folder, line by line.
//
// The folder may hold those of an earlier run. A start that comes to nothing must not take them away, nor add to them: lines are held back
// until the start has made something of its own. Blocks on the disk; what cannot be written is lost, which Status() reports. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::cli {

class RunLogWriter {
 public:
  struct Options {
    bool replace = false;    // what there is, instead of going on behind it
    bool hold_back = false;  // there is something to lose
  };
  static constexpr size_t kMaxHeldLines = 10'000;  // lines; a start has some dozens

  // OK when both files can be written, or made; leaves what they hold as it is. Errors: as base::FileError says, naming the file.
  static absl::Status CheckWritable(const std::string& events_path, const std::string& traces_path);

  RunLogWriter(std::string events_path, std::string traces_path, Options options);

  void Event(absl::string_view line) { Add(line, /*trace=*/false); }
  void Trace(absl::string_view line) { Add(line, /*trace=*/true); }
  // Writes what was held back, and from now on every line at once. Called again it does nothing.
  void Begin();
  // OK while every line that was to be written is in a file that is still there; else what befell the first, naming it.
  absl::Status Status() const;

 private:
  struct Held {
    std::string line;
    bool trace = false;
  };
  void Add(absl::string_view line, bool trace);

  const std::string events_path_, traces_path_;
  const Options options_;
  bool begun_ = false;
  std::vector<Held> held_;
  std::ofstream events_, traces_;
  absl::Status status_;
};

}  // namespace fusionllm::cli
