// The Vercel AI SDK: generateText and streamText, with the provider package of each protocol.
import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const task = JSON.parse(readFileSync(0, "utf8"));
const calls = [];
const apiKey = "a-key";
const v1 = `${task.base_url}/v1`;
const models = {
  anthropic: () => createAnthropic({ baseURL: v1, apiKey })(task.model),
  "openai-responses": () => createOpenAI({ baseURL: v1, apiKey }).responses(task.model),
  "openai-chat": () => createOpenAICompatible({ name: "gateway", baseURL: v1, apiKey })(task.model),
  // The provider treats a name with a slash as a path.
  gemini: () => createGoogleGenerativeAI({ baseURL: `${task.base_url}/v1beta`, apiKey })(`models/${task.model}`),
};
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
  model: models[task.protocol](),
  tools,
  prompt: task.task,
  stopWhen: stepCountIs(6),
  maxRetries: 0,
};
let text;
if (task.stream) {
  const result = streamText({ ...options, onError: ({ error }) => { throw error; } });
  text = await result.text;
} else {
  ({ text } = await generateText(options));
}
process.stdout.write(`\n${JSON.stringify({ calls, text })}\n`);
