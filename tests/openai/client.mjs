// OpenAI's own client against an engine, or a gateway before the engines that are named as well: node client.mjs URL MODEL
// [ENGINE...]. What it prints is what it has seen.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [url, model, ...behind] = process.argv.slice(2);
const engines = behind.length > 0 ? behind : [url];
const client = new OpenAI({ baseURL: url, apiKey: process.env.KEY ?? 'none', maxRetries: 0, timeout: 60_000 });
const messages = [{ role: 'system', content: 'You are brief.' }, { role: 'user', content: 'Say something.' }];
// Long enough that whoever leaves does so before the end.
const { max_model_len: context } = await client.models.retrieve(model);
assert.ok(context >= 256, `the model has a context of ${context}: these checks need one of 256 or more`);
const long = Math.min(1000, context - 16);
const checks = [];
const check = (name, run) => checks.push([name, run]);

// Of all engines together.
const engineCount = async (name) => {
  const counts = await Promise.all(engines.map(async (engine) => {
    const answer = await fetch(new URL('/metrics', engine), { headers: { Authorization: `Bearer ${process.env.KEY}` } });
    return Number((await answer.text()).match(new RegExp(`^tutti_engine_${name} (.*)$`, 'm'))[1]);
  }));
  return counts.reduce((sum, count) => sum + count, 0);
};
const until = async (holds) => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 10));
};

check('models', async () => {
  const models = [];
  for await (const each of client.models.list()) models.push(each.id);
  assert.deepEqual(models, [model]);
  assert.equal((await client.models.retrieve(model)).object, 'model');
});

check('a completion, and the same again', async () => {
  const ask = { model, prompt: 'Once upon a time', max_tokens: 12, temperature: 0 };
  const first = await client.completions.create(ask);
  const again = await client.completions.create({ ...ask, echo: true });
  assert.equal(first.object, 'text_completion');
  assert.ok(first.usage.completion_tokens <= 12 && first.usage.prompt_tokens > 0);
  assert.equal(again.choices[0].text, 'Once upon a time' + first.choices[0].text);
});

check('a conversation with several answers, logprobs and a seed', async () => {
  const ask = { model, messages, n: 3, seed: 7, max_completion_tokens: 8, logprobs: true, top_logprobs: 2 };
  const first = await client.chat.completions.create(ask);
  const again = await client.chat.completions.create(ask);
  assert.equal(first.choices.length, 3);
  assert.deepEqual(first.choices.map((c) => c.message.content), again.choices.map((c) => c.message.content));
  const shown = first.choices[0].logprobs.content;
  assert.ok(shown.length > 0 && shown[0].top_logprobs.length === 2 && shown[0].logprob <= 0);
});

check('a stream is the whole answer in pieces', async () => {
  const ask = { model, messages, max_tokens: 16, temperature: 0 };
  const whole = await client.chat.completions.create(ask);
  const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
  let text = '';
  let usage;
  let reason;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

check("the client's own collector of streams", async () => {
  const runner = client.chat.completions.stream({ model, messages, max_tokens: 8, temperature: 0 });
  const final = await runner.finalChatCompletion();
  assert.equal(typeof final.choices[0].message.content, 'string');
});

check('a schema holds', async () => {
  const schema = {
    type: 'object',
    properties: { colour: { enum: ['red', 'blue'] }, sure: { type: 'boolean' } },
    required: ['colour', 'sure'],
    additionalProperties: false,
  };
  const answer = await client.chat.completions.create({
    model, messages, max_tokens: 120,
    response_format: { type: 'json_schema', json_schema: { name: 'guess', strict: true, schema } },
  });
  const guess = JSON.parse(answer.choices[0].message.content);
  assert.ok(['red', 'blue'].includes(guess.colour) && typeof guess.sure === 'boolean');
});

check('tools go through the template', async () => {
  const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }];
  try {
    const answer = await client.chat.completions.create({ model, messages, tools, max_tokens: 4 });
    assert.equal(answer.choices[0].message.role, 'assistant');
  } catch (error) {
    assert.equal(error.status, 400);  // the template has no place for them
    assert.equal(error.param, 'tools');
  }
});

check('embeddings', async () => {
  const answer = await client.embeddings.create({ model, input: ['one text', 'another', 'one text'] });
  const [first, other, again] = answer.data.map((each) => each.embedding);
  assert.deepEqual(first, again);
  assert.notDeepEqual(first, other);
  assert.ok(Math.abs(Math.hypot(...first) - 1) < 1e-3);
});

check('as many embeddings as there may be, in their order', async () => {
  const input = Array.from({ length: 2048 }, (_, nth) => `text ${nth % 7}`);
  const { data } = await client.embeddings.create({ model, input });
  assert.equal(data.length, input.length);
  data.forEach((each, nth) => {
    assert.equal(each.index, nth);
    assert.deepEqual(each.embedding, data[nth % 7].embedding);
  });
});

check('stops and biases', async () => {
  const answer = await client.completions.create({ model, prompt: 'a', max_tokens: 20, temperature: 0, stop: ['e', ' '] });
  assert.ok(!answer.choices[0].text.includes('e'));
});

check('errors have their classes', async () => {
  await assert.rejects(client.completions.create({ model, prompt: 'a', temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    return true;
  });
  const tooLong = 'a'.repeat(64 * context);
  for (const asked of [
    client.completions.create({ model, prompt: tooLong }),
    client.chat.completions.create({ model, messages: [{ role: 'user', content: tooLong }] }),
    client.embeddings.create({ model, input: tooLong }),
  ])
    await assert.rejects(asked, (error) => error instanceof OpenAI.BadRequestError && error.code === 'context_length_exceeded');
  await assert.rejects(client.completions.create({ model: 'other', prompt: 'a' }), OpenAI.NotFoundError);
  const stranger = new OpenAI({ baseURL: url, apiKey: 'wrong', maxRetries: 0 });
  if (process.env.KEY) await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});

check('many at once', async () => {
  const answers = await Promise.all(
    Array.from({ length: 64 }, (_, nth) =>
      client.completions.create({ model, prompt: `number ${nth}`, max_tokens: 8, temperature: 0 })));
  assert.ok(answers.every((answer) => answer.choices.length === 1));
});

check('who leaves frees the blocks', async () => {
  const stream = await client.completions.create(
    { model, prompt: 'a', max_tokens: long, stream: true }, { headers: { 'x-test': '1' } });
  for await (const _ of stream) break;
  await until(async () => (await engineCount('blocks_used')) === 0);
  const controller = new AbortController();
  const waiting = client.completions.create({ model, prompt: 'a', max_tokens: long }, { signal: controller.signal });
  await until(async () => (await engineCount('blocks_used')) > 0);
  controller.abort();
  await assert.rejects(waiting, OpenAI.APIUserAbortError);
  await until(async () => (await engineCount('blocks_used')) === 0);
});

for (const [name, run] of checks) {
  await run();
  console.log(`fine: ${name}`);
}
