// What a program says before it aborts, a line with its end: to stderr until somebody else takes it, because
// a stderr that takes nothing would keep the program from ending. Any thread.
#pragma once

namespace tutti {

using LastWords = void (*)(const char* line);
void set_last_words(LastWords say);  // nullptr: to stderr

}  // namespace tutti
