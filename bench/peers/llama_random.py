"""Writes a GGUF of the Llama shape of 1.1 billion weights, random, in f16 and without a vocabulary, for llama.cpp's own tools.

    llama_random.py FILE [FOLDER]      FOLDER has the package gguf, which comes with the source of llama.cpp (gguf-py)
"""

import sys

import numpy

if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
import gguf

hidden, layers, heads, kv_heads, intermediate, vocabulary = 2048, 22, 32, 4, 5632, 32000
size = hidden // heads
writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_context_length(8192)
writer.add_embedding_length(hidden)
writer.add_block_count(layers)
writer.add_feed_forward_length(intermediate)
writer.add_head_count(heads)
writer.add_head_count_kv(kv_heads)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(size)
writer.add_vocab_size(vocabulary)
writer.add_file_type(1)
writer.add_tokenizer_model("no_vocab")
random = numpy.random.default_rng(1)


def matrix(name, rows, columns):
    writer.add_tensor(name, (random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02).astype(numpy.float16))


def norm(name):
    writer.add_tensor(name, numpy.ones(hidden, dtype=numpy.float32))


matrix("token_embd.weight", vocabulary, hidden)
matrix("output.weight", vocabulary, hidden)
norm("output_norm.weight")
for layer in range(layers):
    place = f"blk.{layer}."
    norm(place + "attn_norm.weight")
    norm(place + "ffn_norm.weight")
    matrix(place + "attn_q.weight", hidden, hidden)
    matrix(place + "attn_k.weight", kv_heads * size, hidden)
    matrix(place + "attn_v.weight", kv_heads * size, hidden)
    matrix(place + "attn_output.weight", hidden, hidden)
    matrix(place + "ffn_gate.weight", intermediate, hidden)
    matrix(place + "ffn_up.weight", intermediate, hidden)
    matrix(place + "ffn_down.weight", hidden, intermediate)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
