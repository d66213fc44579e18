#include "cli/join/log_tailer.h"

#include <fstream>

namespace fusionllm::cli {

std::string LogTailer::NewText() const {
  std::ifstream in(path_, std::ios::binary);
  in.seekg(shown_);
  std::string text(kMaxBytesPerCall, '\0');
  in.read(text.data(), kMaxBytesPerCall);
  text.resize(in.gcount() > 0 ? in.gcount() : 0);
  return text;
}

void LogTailer::Show() {
  const std::string text = NewText();
  const size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0
  // A line longer than what is read at once would be waited for without end.
  const size_t taken = whole == 0 && text.size() == kMaxBytesPerCall ? text.size() : whole;
  std::fwrite(text.data(), 1, taken, out_);
  std::fflush(out_);
  shown_ += static_cast<int64_t>(taken);
}

void LogTailer::ShowRest() {
  for (std::string text = NewText(); !text.empty(); text = NewText()) {
    std::fwrite(text.data(), 1, text.size(), out_);
    shown_ += static_cast<int64_t>(text.size());
    if (text.size() < kMaxBytesPerCall && text.back() != '\n') std::fputc('\n', out_);
  }
  std::fflush(out_);
}

}  // namespace fusionllm::cli
