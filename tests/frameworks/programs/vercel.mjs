// The Vercel AI SDK: generateText and streamText, with the provider package of each protocol.
// Reads tasks as JSON lines from stdin, and writes a line of JSON for each.
import { createInterface } from "node:readline";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const apiKey = "a-key";
const models = {
  anthropic: (root, name) => createAnthropic({ baseURL: `${root}/v1`, apiKey })(name),
  "openai-responses": (root, name) => createOpenAI({ baseURL: `${root}/v1`, apiKey }).responses(name),
  "openai-chat": (root, name) => createOpenAICompatible({ name: "gateway", baseURL: `${root}/v1`, apiKey })(name),
  // The provider treats a name with a slash as a path.
  gemini: (root, name) => createGoogleGenerativeAI({ baseURL: `${root}/v1beta`, apiKey })(`models/${name}`),
};

async function perform(task) {
  const calls = [];
  const tools = {
    get_weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        calls.push(["get_weather", city]);
        return task.weather[city];
      },
    }),
    save_note: tool({
      description: "Save a note.",
      inputSchema: z.object({ text: z.string(), number: z.number().int() }),
      execute: async ({ text, number }) => {
        calls.push(["save_note", text, number]);
        return task.note_result;
      },
    }),
  };
  const options = {
    model: models[task.protocol](task.base_url, task.model),
    tools,
    prompt: task.task,
    stopWhen: stepCountIs(6),
    maxRetries: 0,
  };
  if (task.variant === "buffered") {
    return { calls, text: (await generateText(options)).text };
  }
  let failure;
  const result = streamText({ ...options, onError: ({ error }) => { failure = error; } });
  const text = await result.text;
  if (failure) throw failure;
  return { calls, text };
}

for await (const line of createInterface({ input: process.stdin })) {
  let outcome;
  try {
    outcome = await perform(JSON.parse(line));
  } catch (error) {
    outcome = { error: String(error?.stack ?? error).slice(-2000) };
  }
  process.stdout.write(`result: ${JSON.stringify(outcome)}\n`);
}
