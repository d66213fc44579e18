// Lines for those who run a program, on stderr: time, level, program, sentence. Lines below the level asked for are not written.
//
// For programs that collect them each line can be an object of JSON instead, with `time`, `level`, `program`, `message` and what the line
// belongs to (log_context.h), all of them texts.
//
// Thread-safe; a line is written in one piece. Before StartLog the program has no name and warnings and errors are written.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error".
absl::string_view Name(LogLevel level);
// Nothing for other words.
std::optional<LogLevel> ParseLogLevel(absl::string_view name);

enum class LogFormat { kText, kJson };

// "text", "json".
absl::string_view Name(LogFormat format);
// Nothing for other words.
std::optional<LogFormat> ParseLogFormat(absl::string_view name);

// Call once, before other threads log.
void StartLog(std::string program, LogLevel min, LogFormat format = LogFormat::kText);
// From now on.
void SetLogLevel(LogLevel min);

// Whether a line of this level is written: asked first where the sentence is costly to make.
bool IsLogged(LogLevel level);
// A line stays a line, and a terminal's state what it is, whatever a peer sent: in text line breaks become "\n", and other control
// characters and what is not UTF-8 "\xNN"; in JSON control characters are escaped as it has them, and what is not UTF-8 becomes U+FFFD.
void Log(LogLevel level, absl::string_view sentence);

}  // namespace fusionllm::base
