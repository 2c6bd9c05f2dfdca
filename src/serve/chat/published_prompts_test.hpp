// What Python's jinja2, set up as transformers does it, makes of the published templates. On 5 November 2026.
#pragma once

#include <array>
#include <string_view>

#include "serve/chat/published_test.hpp"

namespace tutti::serve::chat::published {

struct Prompt {
  std::string_view name;
  std::string_view text;  // the template
  std::string_view conversation;
  std::string_view begin;
  std::string_view end;
  std::string_view expected;  // "refused" if the template refuses it
};

constexpr std::array<Prompt, 44> prompts{{
    {"llama2 single", llama2, single, "<s>", "</s>", R"prompt(<s>[INST] Hello, who are you? [/INST])prompt"},
    {"llama2 with_system", llama2, with_system, "<s>", "</s>",
     R"prompt(<s>[INST] <<SYS>>
You are brief.
<</SYS>>

What is 2 + 2? [/INST])prompt"},
    {"llama2 several", llama2, several, "<s>", "</s>",
     R"prompt(<s>[INST] <<SYS>>
You are brief. 
<</SYS>>

Hi [/INST] Hello! </s><s>[INST] Zwölf Boxkämpfer? [/INST] 文字 🦊 </s><s>[INST] Thanks [/INST])prompt"},
    {"llama2 finished", llama2, finished, "<s>", "</s>",
     R"prompt(<s>[INST] Hi [/INST] <think>
hm
</think>

Hello! </s>)prompt"},
    {"llama2 out_of_turn", llama2, out_of_turn, "<s>", "</s>", R"prompt(refused)prompt"},
    {"llama3 single", llama3, single, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>user<|end_header_id|>

Hello, who are you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama3 with_system", llama3, with_system, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

You are brief.<|eot_id|><|start_header_id|>user<|end_header_id|>

What is 2 + 2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama3 several", llama3, several, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

You are brief.<|eot_id|><|start_header_id|>user<|end_header_id|>

Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>

Hello!<|eot_id|><|start_header_id|>user<|end_header_id|>

Zwölf Boxkämpfer?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

文字 🦊<|eot_id|><|start_header_id|>user<|end_header_id|>

Thanks<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama3 finished", llama3, finished, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>user<|end_header_id|>

Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>

<think>
hm
</think>

Hello!<|eot_id|>)prompt"},
    {"llama3 out_of_turn", llama3, out_of_turn, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>user<|end_header_id|>

a<|eot_id|><|start_header_id|>user<|end_header_id|>

b<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama31 single", llama31, single, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

<|eot_id|><|start_header_id|>user<|end_header_id|>

Hello, who are you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama31 with_system", llama31, with_system, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

You are brief.<|eot_id|><|start_header_id|>user<|end_header_id|>

What is 2 + 2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama31 several", llama31, several, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

You are brief.<|eot_id|><|start_header_id|>user<|end_header_id|>

Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>

Hello!<|eot_id|><|start_header_id|>user<|end_header_id|>

Zwölf Boxkämpfer?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

文字 🦊<|eot_id|><|start_header_id|>user<|end_header_id|>

Thanks<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama31 finished", llama31, finished, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

<|eot_id|><|start_header_id|>user<|end_header_id|>

Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>

<think>
hm
</think>

Hello!<|eot_id|>)prompt"},
    {"llama31 out_of_turn", llama31, out_of_turn, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

<|eot_id|><|start_header_id|>user<|end_header_id|>

a<|eot_id|><|start_header_id|>user<|end_header_id|>

b<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama31 offered", llama31, offered, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Environment: ipython
Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

<|eot_id|><|start_header_id|>user<|end_header_id|>

Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.

Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.

{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather \"now\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {
                    "type": "string"
                },
                "days": {
                    "type": "integer",
                    "default": 1
                }
            },
            "required": [
                "city"
            ]
        }
    }
}

{
    "type": "function",
    "function": {
        "name": "clock",
        "description": "ö",
        "parameters": {
            "type": "object",
            "properties": {}
        }
    }
}

Weather in Paris?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"llama31 called", llama31, called, "<|begin_of_text|>", "<|eot_id|>",
     R"prompt(<|begin_of_text|><|start_header_id|>system<|end_header_id|>

Environment: ipython
Cutting Knowledge Date: December 2023
Today Date: 05 Nov 2026

Use tools.<|eot_id|><|start_header_id|>user<|end_header_id|>

Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.

Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.

{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {
                    "type": "string"
                }
            }
        }
    }
}

Weather in Paris?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

{"name": "weather", "parameters": {"city": "Paris", "days": 2, "also": [1.5, null, true]}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>

"{\"sky\": \"grey\"}"<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)prompt"},
    {"mistral2 single", mistral2, single, "<s>", "</s>",
     R"prompt(<s>[INST]   Hello, who are you?  [/INST])prompt"},
    {"mistral2 with_system", mistral2, with_system, "<s>", "</s>", R"prompt(refused)prompt"},
    {"mistral2 several", mistral2, several, "<s>", "</s>", R"prompt(refused)prompt"},
    {"mistral2 finished", mistral2, finished, "<s>", "</s>",
     R"prompt(<s>[INST] Hi [/INST]<think>
hm
</think>

Hello!</s>)prompt"},
    {"mistral2 out_of_turn", mistral2, out_of_turn, "<s>", "</s>", R"prompt(refused)prompt"},
    {"mistral3 single", mistral3, single, "<s>", "</s>",
     R"prompt(<s>[INST]   Hello, who are you? [/INST])prompt"},
    {"mistral3 with_system", mistral3, with_system, "<s>", "</s>",
     R"prompt(<s>[INST] You are brief.

What is 2 + 2?[/INST])prompt"},
    {"mistral3 several", mistral3, several, "<s>", "</s>",
     R"prompt(<s>[INST] Hi[/INST] Hello!</s>[INST] Zwölf Boxkämpfer?
[/INST] 文字 🦊</s>[INST] You are brief. 

Thanks[/INST])prompt"},
    {"mistral3 finished", mistral3, finished, "<s>", "</s>",
     R"prompt(<s>[INST] Hi[/INST] <think>
hm
</think>

Hello!</s>)prompt"},
    {"mistral3 out_of_turn", mistral3, out_of_turn, "<s>", "</s>", R"prompt(refused)prompt"},
    {"mistral3 offered", mistral3, offered, "<s>", "</s>",
     R"prompt(<s>[AVAILABLE_TOOLS] [{"type": "function", "function": {"name": "weather", "description": "Today's weather "now"", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["city"]}}}, {"type": "function", "function": {"name": "clock", "description": "ö", "parameters": {"type": "object", "properties": {}}}}][/AVAILABLE_TOOLS][INST] Weather in Paris?[/INST])prompt"},
    {"mistral3 called", mistral3, called, "<s>", "</s>",
     R"prompt(<s>[AVAILABLE_TOOLS] [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}][/AVAILABLE_TOOLS][INST] Weather in Paris?[/INST][TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris", "days": 2, "also": [1.5, null, true]}, "id": "abcdefghi"}]</s>[TOOL_RESULTS] {"content": {"sky": "grey"}, "call_id": "abcdefghi"}[/TOOL_RESULTS])prompt"},
    {"qwen25 single", qwen25, single, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>
<|im_start|>user
  Hello, who are you? <|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen25 with_system", qwen25, with_system, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are brief.<|im_end|>
<|im_start|>user
What is 2 + 2?<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen25 several", qwen25, several, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are brief. <|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
 Hello!
<|im_end|>
<|im_start|>user
Zwölf Boxkämpfer?
<|im_end|>
<|im_start|>assistant
文字 🦊<|im_end|>
<|im_start|>user
Thanks<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen25 finished", qwen25, finished, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
<think>
hm
</think>

Hello!<|im_end|>
)prompt"},
    {"qwen25 out_of_turn", qwen25, out_of_turn, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>
<|im_start|>user
a<|im_end|>
<|im_start|>user
b<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen25 offered", qwen25, offered, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful assistant.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "weather", "description": "Today's weather \"now\"", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["city"]}}}
{"type": "function", "function": {"name": "clock", "description": "ö", "parameters": {"type": "object", "properties": {}}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
<|im_start|>user
Weather in Paris?<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen25 called", qwen25, called, "", "<|im_end|>",
     R"prompt(<|im_start|>system
Use tools.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
<|im_start|>user
Weather in Paris?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "weather", "arguments": {"city": "Paris", "days": 2, "also": [1.5, null, true]}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
{"sky": "grey"}
</tool_response><|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen3 single", qwen3, single, "", "<|im_end|>",
     R"prompt(<|im_start|>user
  Hello, who are you? <|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen3 with_system", qwen3, with_system, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are brief.<|im_end|>
<|im_start|>user
What is 2 + 2?<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen3 several", qwen3, several, "", "<|im_end|>",
     R"prompt(<|im_start|>system
You are brief. <|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
 Hello!
<|im_end|>
<|im_start|>user
Zwölf Boxkämpfer?
<|im_end|>
<|im_start|>assistant
文字 🦊<|im_end|>
<|im_start|>user
Thanks<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen3 finished", qwen3, finished, "", "<|im_end|>",
     R"prompt(<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
<think>
hm
</think>

Hello!<|im_end|>
)prompt"},
    {"qwen3 out_of_turn", qwen3, out_of_turn, "", "<|im_end|>",
     R"prompt(<|im_start|>user
a<|im_end|>
<|im_start|>user
b<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen3 quick", qwen3, quick, "", "<|im_end|>",
     R"prompt(<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
<think>

</think>

)prompt"},
    {"qwen3 offered", qwen3, offered, "", "<|im_end|>",
     R"prompt(<|im_start|>system
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "weather", "description": "Today's weather \"now\"", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["city"]}}}
{"type": "function", "function": {"name": "clock", "description": "ö", "parameters": {"type": "object", "properties": {}}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
<|im_start|>user
Weather in Paris?<|im_end|>
<|im_start|>assistant
)prompt"},
    {"qwen3 called", qwen3, called, "", "<|im_end|>",
     R"prompt(<|im_start|>system
Use tools.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
<|im_start|>user
Weather in Paris?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "weather", "arguments": {"city": "Paris", "days": 2, "also": [1.5, null, true]}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
{"sky": "grey"}
</tool_response><|im_end|>
<|im_start|>assistant
)prompt"},
}};

}  // namespace tutti::serve::chat::published
