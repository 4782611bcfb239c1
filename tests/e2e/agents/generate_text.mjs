// Let the AI SDK's Anthropic provider answer in text, and in two steps with a tool.
import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const provider = createAnthropic({ baseURL: `${process.env.GATEWAY_URL}/v1`, apiKey: process.env.GATEWAY_KEY });
const model = provider(process.env.GATEWAY_MODEL);
const plain = await generateText({ model, prompt: "Hello?", maxRetries: 0 });
console.log(`whole: ${plain.text}`);
const stream = streamText({ model, prompt: "Hello?", maxRetries: 0 });
console.log(`streamed: ${await stream.text}`);
const add = tool({
  description: "Add two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => String(a + b),
});
const steps = await generateText({
  model, tools: { add }, stopWhen: isStepCount(3), prompt: "How much is 40 and 2?", maxRetries: 0,
});
console.log(`steps: ${steps.text}`);
