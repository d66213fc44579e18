#include "lib/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log_context.h"

namespace fusionllm::base {
namespace {

constexpr absl::string_view kNames[] = {"debug", "info", "warning", "error"};

std::string& Program() {
  static std::string& program = *new std::string;  // never destroyed: threads may log to the end
  return program;
}
std::atomic<LogLevel> least_level = LogLevel::kWarning;
std::atomic<LogFormat> line_format = LogFormat::kText;

// RFC 3339 in UTC.
std::string Now() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts = {};
  gmtime_r(&now.tv_sec, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                         parts.tm_min, parts.tm_sec, now.tv_nsec / 1'000'000);
}

// The bytes of the UTF-8 sequence that `text` begins with; 0: it begins with none.
size_t SequenceBytes(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80                    ? 1
                       : first >= 0xc2 && first < 0xe0 ? 2
                       : first >= 0xe0 && first < 0xf0 ? 3
                       : first >= 0xf0 && first < 0xf5 ? 4
                                                       : 0;
  if (text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

// What a terminal would obey, or not understand, as \xNN.
std::string Printable(absl::string_view sentence) {
  std::string out;
  out.reserve(sentence.size());
  while (!sentence.empty()) {
    const size_t bytes = SequenceBytes(sentence);
    const auto first = static_cast<unsigned char>(sentence[0]);
    // U+0080 to U+009F are control characters, too.
    const bool control = first < 0x20 || first == 0x7f || (bytes == 2 && first == 0xc2 && static_cast<unsigned char>(sentence[1]) < 0xa0);
    if (first == '\n' || first == '\r' || first == '\t') {
      absl::StrAppend(&out, first == '\n' ? "\\n" : first == '\r' ? "\\r" : "\\t");
    } else if (bytes == 0 || control) {
      for (const char c : sentence.substr(0, std::max<size_t>(bytes, 1)))
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      absl::StrAppend(&out, sentence.substr(0, bytes));
    }
    sentence.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

std::string TextLine(LogLevel level, absl::string_view sentence) {
  return absl::StrCat(Now(), " ", Name(level), " ", Program(), Program().empty() ? "" : ": ", Printable(sentence), "\n");
}

std::string JsonLine(LogLevel level, absl::string_view sentence) {
  nlohmann::ordered_json line = {{"time", Now()}, {"level", std::string(Name(level))}, {"program", Program()}};
  for (const auto& [name, text] : LogContext::Current()) line[name] = text;
  line["message"] = std::string(sentence);
  return line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::string_view Name(LogLevel level) { return kNames[static_cast<int>(level)]; }

std::optional<LogLevel> ParseLogLevel(absl::string_view name) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (name == Name(level)) return level;
  }
  return std::nullopt;
}

absl::string_view Name(LogFormat format) { return format == LogFormat::kJson ? "json" : "text"; }

std::optional<LogFormat> ParseLogFormat(absl::string_view name) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    if (name == Name(format)) return format;
  }
  return std::nullopt;
}

void StartLog(std::string program, LogLevel least, LogFormat format) {
  Program() = std::move(program);
  least_level = least;
  line_format = format;
}

void SetLogLevel(LogLevel least) { least_level = least; }

bool Logs(LogLevel level) { return level >= least_level; }

void Log(LogLevel level, absl::string_view sentence) {
  if (!Logs(level)) return;
  const std::string line = line_format == LogFormat::kJson ? JsonLine(level, sentence) : TextLine(level, sentence);
  std::fwrite(line.data(), 1, line.size(), stderr);  // unbuffered, so one write
}

}  // namespace fusionllm::base
